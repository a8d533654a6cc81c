"""Drills in an epoch: which fault, at which moment, and how the job must take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.drill.crash_points import CrashPoint
from holdfast.drill.moments import OF_AN_EPOCH, Moment, disk_error, driver_fault, jvm_kill
from holdfast.drill.python_faults import PythonAction, PythonFault

Blow = Literal["kill", "pause", "kill supervisor", "kill executor"]
"""What is done from outside once the job waits at the moment: SIGKILL or SIGSTOP to the process
that waits there, or SIGKILL to its supervisor or its executor. A signal that a process sends to
itself takes effect when it likes; one that waits at a gate is where we want it."""

Recovery = Literal["restart", "resume", "takeover", "executors"]
"""Who brings the job back: its supervisor; people, with `holdfast resume`; another supervisor,
while the driver is only asleep and wakes up later; or the executors that are left."""

_RECORD = 150
"""At which record a worker fails: when it has been through some epochs."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How an attempt must end: the error's name and its class."""

    error: str
    failure_class: str


@dataclass(frozen=True, kw_only=True)
class Drill:
    name: str
    fault: str
    """In words."""
    moment: Moment
    injection: CrashPoint | PythonFault
    blow: Blow | None = None
    recovery: Recovery = "restart"
    ends: Ended | None
    """The attempt that the fault strikes. The one after it must finish. None: it must finish
    itself."""


_DIED = Ended(error="DRIVER_DIED", failure_class="lost_driver")
_LOST = Ended(error="ATTEMPT_LOST", failure_class="lost_driver")
_FENCED = Ended(error="FENCED", failure_class="conflict")
_HUNG = Ended(error="DRIVER_HUNG", failure_class="hung")
_FULL = Ended(error="DISK_FULL", failure_class="resource")
_UNWRITABLE = Ended(error="STORAGE_ERROR", failure_class="resource")
_IN_PYTHON = (Moment.M2, Moment.M5, Moment.M6)
_FILE_WRITES = (Moment.M1, Moment.M3, Moment.M6)


def _named(name: str, moment: Moment) -> str:
    return f"{name}-{moment.lower()}"


def _driver_kills() -> list[Drill]:
    return [
        Drill(
            name=_named("driver-kill", moment),
            fault="driver and JVM, kill -9",
            moment=moment,
            injection=driver_fault(moment, "kill") if moment is Moment.M5 else jvm_kill(moment),
            ends=_DIED,
        )
        for moment in OF_AN_EPOCH
    ]


def _python_kills() -> list[Drill]:
    return [
        Drill(
            name=_named("driver-python-kill", moment),
            fault="driver's Python alone, kill -9",
            moment=moment,
            injection=driver_fault(moment, "wait"),
            blow="kill",
            ends=_DIED,
        )
        for moment in (Moment.M2, Moment.M6)
    ]


def _pauses() -> list[Drill]:
    return [
        Drill(
            name=_named("driver-pause", moment),
            fault="driver stopped, supervised",
            moment=moment,
            injection=driver_fault(moment, "wait"),
            blow="pause",
            ends=_HUNG,
        )
        for moment in _IN_PYTHON
    ]


def _zombies() -> list[Drill]:
    return [
        Drill(
            name=_named("driver-zombie", moment),
            fault="driver stopped, wakes up after its replacement",
            moment=moment,
            injection=driver_fault(moment, "wait"),
            blow="pause",
            recovery="takeover",
            ends=_FENCED,
        )
        for moment in _IN_PYTHON
    ]


def _disk_errors() -> list[Drill]:
    broken = [
        Drill(
            name=_named("checkpoint-eio", moment),
            fault="checkpoint cannot be written (EIO)",
            moment=moment,
            injection=disk_error(moment, "eio"),
            ends=_UNWRITABLE,
        )
        for moment in _FILE_WRITES
    ]
    full = [
        Drill(
            name=_named("checkpoint-full", moment),
            fault="disk of the checkpoint full (ENOSPC)",
            moment=moment,
            injection=disk_error(moment, "enospc"),
            ends=_FULL,
        )
        for moment in _FILE_WRITES
    ]
    return broken + full


def _record_fault(action: PythonAction) -> PythonFault:
    return PythonFault(point="drill.record", action=action, on_pass=_RECORD)


def _worker_faults() -> list[Drill]:
    return [
        Drill(
            name="worker-kill",
            fault="Python worker, kill -9 at work",
            moment=Moment.M2,
            injection=_record_fault("wait"),
            blow="kill",
            ends=Ended(error="PYTHON_WORKER_DIED", failure_class="lost_worker"),
        ),
        Drill(
            name="worker-raise",
            fault="exception in the user's code",
            moment=Moment.M2,
            injection=_record_fault("raise"),
            recovery="resume",  # code does not heal by retrying
            ends=Ended(error="USER_FUNCTION_FAILED", failure_class="code"),
        ),
    ]


def _supervisor_kills() -> list[Drill]:
    return [
        Drill(
            name=_named("supervisor-kill", moment),
            fault="supervisor, kill -9",
            moment=moment,
            injection=driver_fault(moment, "wait"),
            blow="kill supervisor",
            recovery="resume",
            ends=_LOST,
        )
        for moment in (Moment.M2, Moment.M6)
    ]


def _executor_kill() -> Drill:
    """On a cluster: Spark runs the tasks again elsewhere, in the same attempt."""
    return Drill(
        name=_named("executor-kill", Moment.M2),
        fault="executor alone, kill -9 at work",
        moment=Moment.M2,
        injection=_record_fault("wait"),
        blow="kill executor",
        recovery="executors",
        ends=None,
    )


EPOCH_DRILLS: tuple[Drill, ...] = (
    *_driver_kills(),
    *_python_kills(),
    *_pauses(),
    *_zombies(),
    *_disk_errors(),
    *_worker_faults(),
    *_supervisor_kills(),
    _executor_kill(),
)
