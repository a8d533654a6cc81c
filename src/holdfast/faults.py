"""Named places where a test can make the process fail.

Production code marks the steps whose interruption matters::

    fault_point("sink.after_commit_record")

and a test chooses what happens there, for a child process by its environment::

    HOLDFAST_FAULTS="sink.after_commit_record=kill@3"

or within its own process with :func:`armed`. The value is a comma-separated list of
``point=action[@n]``, where `n` counts the passes of that point (default: the first), or a
JSON object ``{"point": "action@n"}`` whose values may be lists. Every process counts for
itself; ``point=action[@n] once`` fires in one process only, so that the next attempt of a job
that is restarted with the same environment gets past the point; it needs the log named below.
The actions:

==============  ==================================================================
``kill``        SIGKILL to the whole process group, the JVM child included
``exit``        end this process at once with :data:`EXIT_CODE`, no cleanup
``raise``       RuntimeError that names the point
``stop``        SIGSTOP to this process: alive for the system, silent for everyone
``gate:/path``  wait until that file exists
``enospc``      the OSError of a full disk
``eio``         the OSError of a broken one
``call:m:f``    call function `f` of module `m`
==============  ==================================================================

A fault that never fired proves nothing, so each one is appended to the file named by
``HOLDFAST_FAULTS_LOG`` before it acts; :func:`fired_points` reads it.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SettingsError, shorten

FAULTS_VARIABLE = "HOLDFAST_FAULTS"
LOG_VARIABLE = "HOLDFAST_FAULTS_LOG"

EXIT_CODE = 86
"""What ``exit`` ends with: a code that nothing else in holdfast uses."""

GATE_LIMIT_SECONDS = 600.0
_GATE_POLL_SECONDS = 0.02
_POINT = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
_ACTION = re.compile(
    r"^(kill|exit|raise|stop|enospc|eio|gate:(?P<gate>.+?)|call:(?P<call>[\w.]+:\w+))"
    r"(?:@(?P<on>[1-9]\d*))?(?P<once> once)?$"
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One action at the `on_pass`-th pass of one point."""

    point: str
    action: str
    on_pass: int = 1
    gate: Path | None = None
    call: str = ""
    once: bool = False
    """In one process only, of all that share the log."""


class FaultPlan:
    """The armed faults, and how often each point was passed in this process."""

    def __init__(self, faults: list[Fault], log: Path | None) -> None:
        self._faults = {(fault.point, fault.on_pass): fault for fault in faults}
        self._log = log
        self._passes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def pass_point(self, point: str) -> None:
        with self._lock:
            self._passes[point] += 1
            fault = self._faults.get((point, self._passes[point]))
        if fault is not None and self._is_first(fault):
            self._note(fault)
            _act(fault)

    def _is_first(self, fault: Fault) -> bool:
        if not fault.once or self._log is None:
            return True
        mark = self._log.with_name(f"{self._log.name}.{fault.point}@{fault.on_pass}")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _note(self, fault: Fault) -> None:
        if self._log is None:
            return
        line = {
            "point": fault.point,
            "action": fault.action,
            "pass": fault.on_pass,
            "pid": os.getpid(),
        }
        # Unbuffered and closed before acting: SIGKILL would take a buffer with it.
        with self._log.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def parse_faults(text: str) -> list[Fault]:
    """Read the value of ``HOLDFAST_FAULTS``; SettingsError if it has another syntax."""
    if text.lstrip().startswith("{"):
        return [_fault(point, action, text) for point, action in _json_entries(text)]
    faults = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        point, separator, action = entry.partition("=")
        if not separator:
            raise _bad(text, f"{shorten(entry)} has no '='")
        faults.append(_fault(point.strip(), action.strip(), text))
    return faults


@dataclass(frozen=True, kw_only=True)
class Fired:
    """A fault that has happened, and the process that it happened in."""

    point: str
    action: str
    pid: int


def fired_faults(log: Path) -> list[Fired]:
    """What fired, in order, from the file named by ``HOLDFAST_FAULTS_LOG``."""
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [Fired(point=ln["point"], action=ln["action"], pid=ln["pid"]) for ln in lines]


def fired_points(log: Path) -> list[str]:
    """The names of the points that fired, in order."""
    return [fault.point for fault in fired_faults(log)]


def _json_entries(text: str) -> list[tuple[str, str]]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _bad(text, f"it is not JSON: {error}") from None
    entries = []
    for point, actions in value.items():
        for action in actions if isinstance(actions, list) else [actions]:
            if not isinstance(action, str):
                raise _bad(text, f"the action of {shorten(point)} is not a string")
            entries.append((point, action))
    return entries


def _fault(point: str, action: str, text: str) -> Fault:
    match = _ACTION.match(action)
    if not _POINT.match(point):
        raise _bad(text, f"{shorten(point)} is not the name of a point")
    if match is None:
        raise _bad(text, f"{shorten(action)} is not an action")
    gate = match["gate"]
    return Fault(
        point=point,
        action="gate" if gate else "call" if match["call"] else match[1],
        on_pass=int(match["on"] or 1),
        gate=Path(gate) if gate else None,
        call=match["call"] or "",
        once=match["once"] is not None,
    )


def _bad(text: str, reason: str) -> SettingsError:
    return SettingsError(
        "INVALID_FAULTS",
        f"{FAULTS_VARIABLE} is {shorten(text)}: {reason}.",
        fix="write point=action[@n][ once], comma separated, with the action kill, exit, "
        "raise, stop, enospc, eio, gate:/path or call:module:function; or unset "
        f"{FAULTS_VARIABLE}, which only tests need.",
    )


def _act(fault: Fault) -> None:
    match fault.action:
        case "kill":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        case "exit":
            os._exit(EXIT_CODE)
        case "raise":
            raise RuntimeError(f"injected fault at {fault.point} (pass {fault.on_pass})")
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "enospc" | "eio":
            number = errno.ENOSPC if fault.action == "enospc" else errno.EIO
            raise OSError(number, f"{os.strerror(number)} (injected fault)")
        case "call":
            module, _, function = fault.call.partition(":")
            getattr(importlib.import_module(module), function)()
        case "gate":
            _wait_for_gate(fault)


def _wait_for_gate(fault: Fault) -> None:
    deadline = time.monotonic() + GATE_LIMIT_SECONDS
    while fault.gate is not None and not fault.gate.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the gate {fault.gate} at {fault.point} was never opened")
        time.sleep(_GATE_POLL_SECONDS)


def _plan_of_environment() -> FaultPlan | None:
    text = os.environ.get(FAULTS_VARIABLE, "")
    log = os.environ.get(LOG_VARIABLE, "")
    return FaultPlan(parse_faults(text), Path(log) if log else None) if text.strip() else None


# Read once: a fault point must cost nothing in production.
_PLAN: FaultPlan | None = _plan_of_environment()


def fault_point(point: str) -> None:
    """Do nothing, unless a test armed a fault here."""
    if _PLAN is not None:
        _PLAN.pass_point(point)


@contextmanager
def armed(faults: str, *, log: Path | None = None) -> Iterator[None]:
    """Arm `faults` in this process for a ``with`` block; passes are counted from its start."""
    global _PLAN  # noqa: PLW0603 - the plan belongs to the process, like the environment
    before = _PLAN
    _PLAN = FaultPlan(parse_faults(faults), log)
    try:
        yield
    finally:
        _PLAN = before
