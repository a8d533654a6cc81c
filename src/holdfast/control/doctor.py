"""Checks of the machine: all of them for `holdfast doctor`, the vital ones at each start.

No check imports what it checks: PySpark alone would take a second.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from holdfast.control.java import require_java
from holdfast.errors import EnvironmentProblem, HoldfastError

OLDEST_PYTHON = (3, 11)
LOW_DISK_BYTES = 2 * 1024**3
NO_DISK_BYTES = 200 * 1024**2


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found; `fix` is empty when there is nothing to do."""

    check: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Python package that a job needs, with the versions that are known to work."""

    name: str
    requirement: str
    at_least: tuple[int, ...] = (0,)
    below: tuple[int, ...] = (sys.maxsize,)

    @property
    def error_prefix(self) -> str:
        return self.name.upper()


# The same bounds as in pyproject.toml; a test compares them.
PACKAGES = (
    Package(name="pyspark", requirement="pyspark==4.3.*", at_least=(4, 3), below=(4, 4)),
    Package(name="pandas", requirement="pandas>=2.2,<3", at_least=(2, 2), below=(3,)),
    Package(name="pyarrow", requirement="pyarrow>=18", at_least=(18,)),
    Package(name="protobuf", requirement="protobuf>=5", at_least=(5,)),
)


def require_environment() -> None:
    """Raise the first thing that would keep a job from starting. Takes milliseconds."""
    require_python()
    require_java()
    for package in PACKAGES:
        require_package(package)


Check = tuple[str, Callable[[], str | Finding]]


def examine(
    home: Path, storage: Path, registry_url: str, more: Sequence[Check] = ()
) -> list[Finding]:
    """Run every check; none of them stops the others."""
    checks: list[Check] = [
        ("java", _java),
        ("python", require_python),
        *((package.name, _package_check(package)) for package in PACKAGES),
        ("state client", _state_client),
        ("home", lambda: _directory("home", home)),
        ("storage", lambda: _directory("storage", storage)),
        ("file system", lambda: _file_system(storage)),
        ("registry", lambda: _registry(registry_url)),
        *more,
    ]
    return [_examine(name, check) for name, check in checks]


def _state_client() -> Finding | str:
    """The rocksdb backend uses a part of PySpark's state client that is private."""
    try:
        from holdfast.engine.entries import pipelining_problem
    except ImportError as error:
        return Finding(
            check="state client",
            status=Status.WARN,
            found=f"not checked: {error}",
            fix="install the packages above first.",
        )
    problem = pipelining_problem()
    if problem is None:
        return "pipelines requests"
    return Finding(
        check="state client",
        status=Status.WARN,
        found=f"{problem}; the rocksdb backend works, one request at a time",
        fix="use a PySpark version that this holdfast was tested with.",
    )


def _examine(name: str, check: Callable[[], str | Finding]) -> Finding:
    try:
        found = check()
    except HoldfastError as error:
        return Finding(check=name, status=Status.FAIL, found=error.message, fix=error.fix)
    except Exception as error:  # a check that breaks is a finding, not the end of the others
        text = f"the check itself failed: {type(error).__name__}: {error}"
        return Finding(check=name, status=Status.FAIL, found=text, fix="report this.")
    if isinstance(found, Finding):
        return found
    return Finding(check=name, status=Status.OK, found=found)


# -- programs and packages --------------------------------------------------------------


def _java() -> str:
    java = require_java()
    return f"{java.version} ({java.executable})"


def require_python(version: tuple[int, ...] = sys.version_info[:3]) -> str:
    text = ".".join(str(number) for number in version)
    if version < OLDEST_PYTHON:
        oldest = ".".join(str(number) for number in OLDEST_PYTHON)
        raise EnvironmentProblem(
            "PYTHON_TOO_OLD",
            f"this is Python {text}; holdfast needs {oldest} or newer.",
            fix=f"make the virtual environment with Python {oldest} or newer.",
        )
    return f"{text} ({sys.executable})"


def _package_check(package: Package) -> Callable[[], str]:
    return lambda: require_package(package)


def require_package(package: Package) -> str:
    """The installed version, or an error named after the package."""
    fix = f'pip install "{package.requirement}"'
    try:
        version = metadata.version(package.name)
    except metadata.PackageNotFoundError as error:
        raise EnvironmentProblem(
            f"{package.error_prefix}_MISSING",
            f"the Python package {package.name} is not installed for {sys.executable}.",
            fix=fix,
        ) from error
    if not package.at_least <= _numbers(version) < package.below:
        raise EnvironmentProblem(
            f"{package.error_prefix}_UNSUPPORTED",
            f"{package.name} {version} is installed; holdfast works with "
            f"{package.requirement}.",
            fix=fix,
            version=version,
        )
    return version


def _numbers(version: str) -> tuple[int, ...]:
    """(4, 3, 0) for "4.3.0.dev1": the leading numbers decide, the suffix does not."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else (0,)


# -- disks ------------------------------------------------------------------------------


def _directory(name: str, directory: Path) -> Finding | str:
    with _probe_folder(name, directory) as folder:
        (folder / "probe").write_bytes(b"holdfast")
        free = shutil.disk_usage(folder).free
    found = f"{directory}, {free / 1024**3:.1f} GiB free"
    if free >= LOW_DISK_BYTES:
        return found
    status = Status.WARN if free >= NO_DISK_BYTES else Status.FAIL
    fix = f"free some space, or set HOLDFAST_{name.upper()} to a directory on a larger disk."
    return Finding(check=name, status=status, found=found, fix=fix)


def _file_system(storage: Path) -> Finding | str:
    """What commits stand on: a rename replaces at once, a link never overwrites."""
    with _probe_folder("storage", storage) as folder:
        old, new = folder / "old", folder / "new"
        old.write_bytes(b"old")
        new.write_bytes(b"new")
        try:
            new.rename(old)
        except OSError as error:
            raise _bad_file_system(storage, f"rename fails ({error.strerror})") from error
        if old.read_bytes() != b"new" or new.exists():
            raise _bad_file_system(storage, "rename does not replace the target")
        return _hard_links(storage, old)


def _hard_links(storage: Path, file: Path) -> Finding | str:
    link = file.with_name("link")
    try:
        link.hardlink_to(file)
    except OSError as error:
        return Finding(
            check="file system",
            status=Status.WARN,
            found=f"{storage} has no hard links ({error.strerror}); files are copied instead",
            fix="nothing must be done; another file system would make copies faster.",
        )
    try:
        link.hardlink_to(file)
    except FileExistsError:
        return "rename replaces at once, hard links work"
    raise _bad_file_system(storage, "a hard link overwrites an existing file")


def _bad_file_system(storage: Path, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        "FILE_SYSTEM_UNSUITABLE",
        f"commits cannot be made safe on the file system of {storage}: {reason}.",
        fix="set HOLDFAST_STORAGE to a directory on a local POSIX file system.",
    )


@contextmanager
def _probe_folder(name: str, directory: Path) -> Iterator[Path]:
    """A throw-away folder where `directory` is or would be created."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        # Trying beats asking for the rights: root, ACLs and read-only mounts answer wrongly.
        with tempfile.TemporaryDirectory(prefix=".holdfast-probe-", dir=nearest) as folder:
            yield Path(folder)
    except OSError as error:
        raise EnvironmentProblem(
            "NOT_WRITABLE",
            f"{directory} cannot be written to: {error.strerror}.",
            fix=f"give yourself the right to write there, or set HOLDFAST_{name.upper()} "
            "to another directory.",
        ) from error


# -- registry ---------------------------------------------------------------------------


def _registry(url: str) -> Finding | str:
    from holdfast.control.registry import Registry
    from holdfast.control.tables import SCHEMA_HEAD

    with Registry(url, busy_seconds=2) as registry:
        version = registry.schema_version()
        shown = registry.shown_url
    if version is None:
        return f"{shown}, will be created at the first use"
    if version == SCHEMA_HEAD:
        return f"{shown}, schema {version}"
    if version < SCHEMA_HEAD:
        return f"{shown}, schema {version}, will be upgraded to {SCHEMA_HEAD} at the next use"
    return Finding(
        check="registry",
        status=Status.FAIL,
        found=f"{shown} is at schema {version}; this holdfast knows {SCHEMA_HEAD}",
        fix="upgrade holdfast, or set HOLDFAST_REGISTRY_URL to another registry.",
    )
