"""Runs one program at a time and watches it: what it reports, how much memory it takes.

A program gets a session (in the sense of setsid) of its own. Spark's JVM and the Python
workers, which change their process group, stay in that session, so it names exactly what is
to be counted, and what is to be killed when the program hangs or the user has enough.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from holdfast.bench.programs import Program

TIMEOUT_SECONDS = 1800
_SAMPLE_SECONDS = 0.25
_LOG_LINES = 15
_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A micro-batch, as both sides report it. Times are seconds since 1970."""

    number: int
    started: float
    ended: float
    rows: int
    phases: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(kw_only=True)
class PeakMemory:
    """Largest resident memory seen, in bytes. Pages that forked workers share count twice."""

    total: int = 0
    jvm: int = 0
    python: int = 0

    def note(self, processes: Mapping[int, tuple[str, int]]) -> None:
        jvm = sum(size for name, size in processes.values() if name == "java")
        everything = sum(size for _, size in processes.values())
        self.total = max(self.total, everything)
        self.jvm = max(self.jvm, jvm)
        self.python = max(self.python, everything - jvm)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a program that ended well has shown."""

    spawned: float
    seconds: float
    events: list[dict[str, Any]]
    epochs: list[Epoch]
    started_at: float | None
    timings: Mapping[str, float]
    memory: PeakMemory


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Why there is no figure."""

    reason: str
    log: Path
    tail: list[str] = field(default_factory=list)


class _Output(threading.Thread):
    """Collects the JSON lines of a program, with the time at which each arrived."""

    def __init__(self, stream: IO[str], on_epoch: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self._stream, self._on_epoch = stream, on_epoch
        self.events: list[dict[str, Any]] = []

    def run(self) -> None:
        for line in self._stream:
            event = _event(line)
            if event is None:
                continue
            event["arrived"] = time.time()
            self.events.append(event)
            if event["event"] == "epoch":
                self._on_epoch(event["epoch"])


def _event(line: str) -> dict[str, Any] | None:
    """None for anything else that a program, or its JVM, says."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def measure(
    program: Program,
    on_epoch: Callable[[int], None] = lambda number: None,
    timeout: float = TIMEOUT_SECONDS,
) -> Measured | Failed:
    """Run a program to its end, or to the timeout."""
    program.scratch.mkdir(parents=True, exist_ok=True)
    memory = PeakMemory()
    spawned, clock = time.time(), time.monotonic()
    with program.log.open("wb") as log:
        process = subprocess.Popen(
            program.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=program.folder,
            env=program.full_environment(),
            start_new_session=True,
        )
    assert process.stdout is not None
    output = _Output(process.stdout, on_epoch)
    output.start()
    try:
        while process.poll() is None and time.monotonic() - clock < timeout:
            memory.note(_session_processes(process.pid))
            time.sleep(_SAMPLE_SECONDS)
        code, seconds = process.poll(), time.monotonic() - clock
        if code is not None:
            _await_session(process.pid)
    finally:
        _kill_session(process)
    output.join()
    if code != 0:
        why = f"still running after {timeout:.0f} s" if code is None else f"exit code {code}"
        return Failed(reason=why, log=program.log, tail=_tail(program.log))
    return _measured(output.events, memory, spawned, seconds)


def _measured(
    events: list[dict[str, Any]], memory: PeakMemory, spawned: float, seconds: float
) -> Measured:
    started = next((event for event in events if event["event"] == "started"), {})
    epochs = [
        Epoch(
            number=event["epoch"],
            started=seconds_since_1970(event["started"]),
            ended=seconds_since_1970(event["ended"]),
            rows=event["input_rows"],
            phases=event["phases"],
        )
        for event in events
        if event["event"] == "epoch" and event["input_rows"]
    ]
    return Measured(
        spawned=spawned,
        seconds=seconds,
        events=events,
        epochs=sorted(epochs, key=lambda epoch: epoch.number),
        started_at=started.get("arrived"),
        timings=started.get("timings", {}),
        memory=memory,
    )


def seconds_since_1970(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _tail(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-_LOG_LINES:]


def _await_session(session: int, patience: float = 10.0) -> None:
    """The JVM outlives its driver for a moment, to clean up."""
    deadline = time.monotonic() + patience
    while _session_processes(session) and time.monotonic() < deadline:
        time.sleep(_SAMPLE_SECONDS)


def _kill_session(process: subprocess.Popen[str]) -> None:
    """End everything the program started. Its id names the session, and ours alone."""
    if process.poll() is None and not _PROC.is_dir():
        os.killpg(process.pid, signal.SIGKILL)
    # Again and again: one that is just being forked is not in the first list.
    while members := _session_processes(process.pid):
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    process.wait()


def _session_processes(session: int) -> dict[int, tuple[str, int]]:
    """Process id to name and resident bytes; empty where there is no /proc."""
    return dict(_members(session)) if _PROC.is_dir() else {}


def _members(session: int) -> Iterator[tuple[int, tuple[str, int]]]:
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            # The name is in parentheses and may hold anything; fields are counted behind it.
            name, _, rest = stat.partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                pages = 0 if _borrows_memory(entry, fields[1]) else int(fields[21])
                yield int(entry.name), (name, pages * os.sysconf("SC_PAGE_SIZE"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked


def _borrows_memory(process: Path, parent: str) -> bool:
    """Whether it is a child that the JVM is just starting.

    Until it becomes another program it runs in the JVM's own memory, and is said to have all
    of it. Spark's file access starts such children in every batch.
    """
    return _runs_java(process) and _runs_java(_PROC / parent)


def _runs_java(process: Path) -> bool:
    try:
        return (process / "exe").readlink().name == "java"
    except PermissionError:
        return False  # somebody else's
