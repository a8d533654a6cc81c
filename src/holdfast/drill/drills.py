"""Drills in an epoch: which fault, at which moment, and how the job must take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.drill.crash_points import CrashPoint
from holdfast.drill.moments import (
    EPOCH,
    OF_AN_EPOCH,
    Moment,
    disk_error,
    driver_fault,
    jvm_kill,
    waits,
)
from holdfast.drill.python_faults import PythonAction, PythonFault

Blow = Literal[
    "kill",
    "kill python",
    "kill jvm",
    "kill workers",
    "kill supervisor",
    "kill executor",
    "pause",
]
"""What is done from outside once the job waits at the moment: SIGKILL to the process that waits
there, to the driver's Python, to its JVM, to its idle Python workers, to its supervisor or to
an executor; or SIGSTOP to the driver and all that belongs to it. A signal that a process sends
to itself takes effect when it likes; one that waits at a gate is where we want it."""

Recovery = Literal["restart", "resume", "takeover", "itself"]
"""Who brings the job back: its supervisor; people, with `holdfast resume`; another supervisor,
while the driver is only asleep and wakes up later; or nobody, the attempt goes on."""

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

    @property
    def on_cluster(self) -> bool:
        return self.blow == "kill executor"

    @property
    def told(self) -> set[str]:
        """What the history must say about it, if the attempt goes on."""
        if not self.on_cluster:
            return set()
        at_work = self.moment in (Moment.M2, Moment.M3)
        return {"executor_lost", *(["loss_overcome"] if at_work else [])}


_DIED = Ended(error="DRIVER_DIED", failure_class="lost_driver")
JVM_DIED = Ended(error="JVM_DIED", failure_class="lost_driver")
_LOST = Ended(error="ATTEMPT_LOST", failure_class="lost_driver")
_WORKER_DIED = Ended(error="PYTHON_WORKER_DIED", failure_class="lost_worker")
_FENCED = Ended(error="FENCED", failure_class="conflict")
_HUNG = Ended(error="DRIVER_HUNG", failure_class="hung")
_FULL = Ended(error="DISK_FULL", failure_class="resource")
_UNWRITABLE = Ended(error="STORAGE_ERROR", failure_class="resource")
_OUT_OF_MEMORY = Ended(error="OUT_OF_MEMORY", failure_class="resource")
_TOO_LONG = Ended(error="EPOCH_TIMEOUT", failure_class="hung")
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


def _struck_while_waiting() -> list[Drill]:
    """What can happen to a driver, or to whoever watches it, at any moment of an epoch."""
    kinds: tuple[tuple[str, str, Blow | None, Recovery, Ended], ...] = (
        (
            "driver-python-kill",
            "driver's Python, kill -9",
            "kill python",
            "restart",
            _DIED,
        ),
        ("driver-jvm-kill", "driver's JVM alone, kill -9", "kill jvm", "restart", JVM_DIED),
        ("driver-pause", "driver stopped, supervised", "pause", "restart", _HUNG),
        (
            "driver-zombie",
            "driver stopped, wakes up after its replacement",
            "pause",
            "takeover",
            _FENCED,
        ),
        ("driver-hung", "epoch that does not end", None, "restart", _TOO_LONG),
        ("supervisor-kill", "supervisor, kill -9", "kill supervisor", "resume", _LOST),
    )
    return [
        Drill(
            name=_named(name, moment),
            fault=fault,
            moment=moment,
            injection=waits(moment),
            blow=blow,
            recovery=recovery,
            ends=ends,
        )
        for name, fault, blow, recovery, ends in kinds
        for moment in OF_AN_EPOCH
    ]


def _out_of_memory() -> list[Drill]:
    return [
        Drill(
            name=_named("driver-oom", moment),
            fault="heap of the driver's JVM used up",
            moment=moment,
            injection=driver_fault(moment, "oom"),
            ends=_OUT_OF_MEMORY,
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
            ends=_WORKER_DIED,
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


def _idle_workers_killed() -> Drill:
    """What they have computed is there already, and the next epoch gets others."""
    return Drill(
        name=_named("worker-kill", Moment.M5),
        fault="all Python workers, kill -9",
        moment=Moment.M5,
        injection=waits(Moment.M5),
        blow="kill workers",
        recovery="itself",
        ends=None,
    )


_AT_WORK: dict[Moment, PythonFault] = {
    Moment.M2: _record_fault("wait"),
    # Each executor has one partition, and knows nothing of the other's state.
    Moment.M4: PythonFault(point="sink.before_commit_record", action="wait", on_pass=EPOCH + 1),
}


def _executor_kills() -> list[Drill]:
    """On a cluster: Spark runs the tasks again elsewhere, in the same attempt."""
    return [
        Drill(
            name=_named("executor-kill", moment),
            fault="executor alone, kill -9",
            moment=moment,
            injection=_AT_WORK.get(moment) or waits(moment),
            blow="kill executor",
            recovery="itself",
            ends=None,
        )
        for moment in OF_AN_EPOCH
    ]


EPOCH_DRILLS: tuple[Drill, ...] = (
    *_driver_kills(),
    *_struck_while_waiting(),
    *_out_of_memory(),
    *_disk_errors(),
    *_worker_faults(),
    _idle_workers_killed(),
    *_executor_kills(),
)
