"""Processes that outlive the command that started them.

A pid alone says nothing: after a reboot, or after some days, another process may have it. So a
process is remembered with the time of its start, and what it started itself is recognised by a
mark in its environment, which children inherit. Nothing else is ever sent a signal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.storage import processes as system

MARK_VARIABLE = "_HOLDFAST_CLUSTER_MEMBER"  # not HOLDFAST_…: those are settings
_PROC = Path("/proc")
_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Process:
    pid: int
    started: str
    """Opaque, compared only: the boot, and the ticks since then."""


def find_process(pid: int) -> Process | None:
    """The living process with this number; a zombie is dead."""
    ticks = system.started_at(pid)
    if ticks is None or not system.is_alive(pid, ticks):
        return None
    return Process(pid=pid, started=f"{_boot()}/{ticks}")


def is_alive(process: Process) -> bool:
    return find_process(process.pid) == process


def family(leader: Process, mark: str) -> list[Process]:
    """The leader, if it lives, and everything that carries its mark."""
    found = set(marked(mark))
    if is_alive(leader):
        found.add(leader)
    return sorted(found, key=lambda process: process.pid)


def end_all(
    living: Callable[[], Iterable[Process]], *, ask_seconds: float, kill_seconds: float
) -> list[Process]:
    """End what `living` finds: SIGTERM and some patience, if any, then SIGKILL.

    Returns those that are still there.
    """
    for number, patience in ((signal.SIGTERM, ask_seconds), (signal.SIGKILL, kill_seconds)):
        if not patience:
            continue
        told: set[Process] = set()
        deadline = time.monotonic() + patience
        while left := list(living()):
            if time.monotonic() > deadline:
                break
            # What was forked meanwhile shows in a later round.
            for process in set(left) - told:
                send(process, number)
                told.add(process)
            time.sleep(_POLL_SECONDS)
        else:
            return []
    return list(living())


def send(process: Process, number: signal.Signals) -> None:
    """A signal to exactly this process; none if it is gone."""
    if is_alive(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def was_started_with(process: Process, word: str) -> bool:
    """Whether a word is among the arguments of a process."""
    try:
        arguments = (_PROC / str(process.pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile
        return False
    return word.encode() in arguments


@cache
def _boot() -> str:
    """Start times count from the boot, so they repeat after the next one."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def marked(mark: str) -> Iterator[Process]:
    """What carries this mark; one that ends in a slash stands for all that begin with it."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()

    def carries(entry: Path) -> bool:
        variables = _variables(entry)
        if mark.endswith("/"):
            return any(variable.startswith(wanted) for variable in variables)
        return wanted in variables

    for entry in _PROC.iterdir():
        if entry.name.isdigit() and carries(entry):
            process = find_process(int(entry.name))
            # Once more: between the two looks the number may have changed hands.
            if process is not None and carries(entry):
                yield process


def _variables(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []
