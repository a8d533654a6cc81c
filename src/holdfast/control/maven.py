"""Jars from Maven: resolved once, then kept.

Maven is asked because it takes what a machine is set up for: mirrors, proxies, credentials. Its
own cache is not used afterwards: a second start works without Maven, and without a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.errors import EnvironmentProblem
from holdfast.storage.files import exclusive_lock, make_directory, remove_tree, storage_errors

_RESOLVE_SECONDS = 900.0
_SHOWN_LINES = 6
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>
    </dependency>
"""


def pom_for(coordinates: Iterable[str]) -> str:
    """A project that depends on `group:artifact:version`, and on all that they need."""
    dependencies = (_DEPENDENCY.format(*each.split(":")) for each in coordinates)
    return _POM.format(dependencies="".join(dependencies))


def jars_folder(cache: Path, name: str, pom: str) -> Path:
    """Where the jars of a project are, or would be; another project has another folder."""
    return cache / "jars" / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"


def resolved_jars(
    cache: Path, name: str, pom: str, say: Callable[[str], None] = lambda text: None
) -> Path:
    """A folder with all jars of a project. Asks Maven if they are not there yet."""
    folder = jars_folder(cache, name, pom)
    if folder.is_dir():
        return folder
    make_directory(folder.parent)
    with exclusive_lock(folder.parent / "lock", timeout=_RESOLVE_SECONDS):
        if not folder.is_dir():
            say(f"resolving {name} with Maven; this happens once")
            _resolve(folder, name, pom)
    return folder


def _resolve(folder: Path, name: str, pom: str) -> None:
    program = find_maven(name)
    with storage_errors(folder):
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (work / "pom.xml").write_text(pom, encoding="utf-8")
        command = [
            *(program, "-q", "-B", "-U", "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"),
        ]
        try:
            ran = subprocess.run(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_RESOLVE_SECONDS,
                check=False,
            )
            said, failed = ran.stdout + ran.stderr, ran.returncode != 0
        except (OSError, subprocess.TimeoutExpired) as error:
            said, failed = str(error), True
        if failed or not any((work / "jars").glob("*.jar")):
            raise _not_resolved(name, said)
        # Whole or not at all: a folder that is there is taken for complete.
        (work / "jars").rename(folder)
    finally:
        remove_tree(work)


def find_maven(purpose: str) -> str:
    home = os.environ.get("MAVEN_HOME")
    program = shutil.which("mvn") or (shutil.which("mvn", path=f"{home}/bin") if home else None)
    if program is None:
        raise EnvironmentProblem(
            "MAVEN_NOT_FOUND",
            f"{purpose} comes from Maven, and there is no `mvn` on PATH.",
            fix="install Maven (Debian, Ubuntu: `apt install maven`; macOS: `brew install "
            "maven`). It is needed once; the jars are kept.",
        )
    return program


def _not_resolved(name: str, said: str) -> EnvironmentProblem:
    lines = [line for line in said.splitlines() if line.startswith("[ERROR]") and line[8:]]
    shown = "".join(f"\n{line[:400]}" for line in (lines or said.splitlines())[:_SHOWN_LINES])
    return EnvironmentProblem(
        "JARS_NOT_RESOLVED",
        f"Maven could not resolve {name}:{shown}",
        fix="check the network, and the mirrors and proxies in Maven's settings.xml; then try "
        "again.",
    )
