"""Drills in an epoch: which fault, at which moment, and how the job must take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.drill import endings
from holdfast.drill.crash_points import CrashPoint
from holdfast.drill.endings import Ended
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
            ends=endings.DIED,
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
            endings.DIED,
        ),
        (
            "driver-jvm-kill",
            "driver's JVM alone, kill -9",
            "kill jvm",
            "restart",
            endings.JVM_DIED,
        ),
        ("driver-pause", "driver stopped, supervised", "pause", "restart", endings.HUNG),
        (
            "driver-zombie",
            "driver stopped, wakes up after its replacement",
            "pause",
            "takeover",
            endings.FENCED,
        ),
        ("driver-hung", "epoch that does not end", None, "restart", endings.TOO_LONG),
        ("supervisor-kill", "supervisor, kill -9", "kill supervisor", "resume", endings.LOST),
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
            ends=endings.OUT_OF_MEMORY,
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
            ends=endings.UNWRITABLE,
        )
        for moment in _FILE_WRITES
    ]
    full = [
        Drill(
            name=_named("checkpoint-full", moment),
            fault="disk of the checkpoint full (ENOSPC)",
            moment=moment,
            injection=disk_error(moment, "enospc"),
            ends=endings.FULL,
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
            ends=endings.WORKER_DIED,
        ),
        Drill(
            name="worker-raise",
            fault="exception in the user's code",
            moment=Moment.M2,
            injection=_record_fault("raise"),
            recovery="resume",  # code does not heal by retrying
            ends=endings.USER_CODE,
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
