"""Processes of this machine, as /proc tells of them.

A process is its pid and the time it started: pids are used again. A driver starts a session of
its own, and everything that comes from it (JVM, Python daemons, workers) stays in that session,
also after its parent has died. So a session is what is killed, and what must be gone.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_SESSION, _STARTED, _STATE, _PARENT = 3, 19, 0, 1
"""Places in /proc/PID/stat, counted behind the name of the program."""
_POLL_SECONDS = 0.02


def started_at(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if there is none."""
    fields = _stat(pid)
    return None if fields is None else int(fields[_STARTED])


def is_alive(pid: int, started: int | None) -> bool:
    """Whether that very process is still there. A zombie is not."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] == "Z":
        return False
    return started is None or int(fields[_STARTED]) == started


def parent_of(pid: int) -> int | None:
    """None if there is no such process, or if it has no parent."""
    fields = _stat(pid)
    return (int(fields[_PARENT]) or None) if fields else None


def children_of(pid: int) -> list[int]:
    return [child for child in _all() if parent_of(child) == pid]


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for pid in _all():
        fields = _stat(pid)
        if fields and fields[_STATE] != "Z" and int(fields[_SESSION]) == session:
            found.append(pid)
    return found


def is_session(session: int, started: int | None) -> bool:
    """Whether that number is still the session whose first process started then.

    While a session has members its number is not given to another process. So one that is led
    by a younger process is not the one that is looked for.
    """
    leader = started_at(session)
    return leader is None or leader == started


def kill_session(session: int, *, patience: float = 30.0) -> bool:
    """Kill all processes of a session and wait until they are gone; False: some are not.

    A process may be forked while the others are being killed, so it is done again until
    nothing is left.
    """
    deadline = time.monotonic() + patience
    while members := session_members(session):
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _all() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may hold anything, also spaces and parentheses.
    return text.rpartition(")")[2].split()
