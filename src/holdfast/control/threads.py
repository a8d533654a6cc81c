"""What the threads of a running job do right now: of its driver's JVM, and of its Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.java import find_java
from holdfast.control.job_views import process_is_there
from holdfast.control.registry import AttemptRow, JobRow
from holdfast.errors import ConflictError, EnvironmentProblem, RunFailedError
from holdfast.storage.processes import children_of

_SECONDS = 60.0
_SHOWN = 400


@dataclass(frozen=True, kw_only=True)
class ThreadDump:
    of: str
    """`JVM` or `Python`."""
    pid: int
    text: str
    """What the tool said, as it is."""


def dump_threads(row: JobRow, attempts: list[AttemptRow]) -> list[ThreadDump]:
    """The JVM's is required, Python's is there if py-spy is."""
    driver = _driver(row, attempts)
    jvms = [pid for pid in _descendants(driver) if _program(pid) == "java"]
    if not jvms:
        raise ConflictError(
            "JVM_NOT_FOUND",
            f"the driver of job {row.name!r}, process {driver}, has no JVM now.",
            fix="it may be starting or ending; try again in a moment.",
        )
    found = [
        ThreadDump(of="JVM", pid=pid, text=_said(jvm_command(pid, _tool), f"JVM {pid}"))
        for pid in jvms
    ]
    spy = shutil.which("py-spy")
    if spy is not None:
        command = [spy, "dump", "--pid", str(driver)]
        found.append(ThreadDump(of="Python", pid=driver, text=_said(command, "the driver")))
    return found


def jvm_command(pid: int, tool: Callable[[str], str | None]) -> list[str]:
    """By whichever tool the Java has; a JRE has none."""
    jcmd, jstack = tool("jcmd"), tool("jstack")
    if jcmd is not None:
        return [jcmd, str(pid), "Thread.print", "-l"]
    if jstack is not None:
        return [jstack, "-l", str(pid)]
    raise EnvironmentProblem(
        "JDK_MISSING",
        "there is neither jcmd nor jstack: this Java is a JRE.",
        fix="install the JDK of the same version (Debian, Ubuntu: `apt install "
        "openjdk-17-jdk-headless`).",
    )


def _tool(name: str) -> str | None:
    """Beside the Java that Spark uses: its version must be the JVM's."""
    beside = find_java().executable.resolve().parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def _driver(row: JobRow, attempts: list[AttemptRow]) -> int:
    last = attempts[-1] if attempts else None
    if last is None or not process_is_there(row, last):
        raise ConflictError(
            "JOB_NOT_RUNNING",
            f"job {row.name!r} is {row.state.value.lower()}, and has no process here.",
            fix=f"`holdfast logs {row.name}` shows what it said; `holdfast resume {row.name}` "
            "runs it again.",
        )
    return last.pid


def _descendants(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants(child)


def _program(pid: int) -> str:
    """Empty: it is gone, or has ended and nobody has looked after it yet."""
    try:
        if not Path(f"/proc/{pid}/cmdline").read_bytes():
            return ""
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _said(command: list[str], who: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip()[-_SHOWN:]
        raise RunFailedError(
            "THREADS_NOT_READ",
            f"`{' '.join(command)}` did not tell the threads of {who}: {said}",
            fix="run it as the user of the job, or as root.",
        ) from error
    return done.stdout
