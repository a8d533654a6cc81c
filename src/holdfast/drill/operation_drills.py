"""Drills in an operation on a job: who is struck on its way, and what must follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.drill import endings
from holdfast.drill.endings import Ended
from holdfast.drill.moments import Moment
from holdfast.drill.python_faults import PythonAction, PythonFault

Operation = Literal["savepoint", "rollback", "rescale"]
Victim = Literal["command", "driver", "python", "jvm", "supervisor", "executor", "nobody"]
"""The command that was given; the job's driver with its JVM, or one of the two alone; the job's
supervisor; an executor of its cluster; or nobody: it is the fault itself that strikes."""
Recovery = Literal["restart", "resume", "repeat", "takeover", "itself"]
"""What brings the job back: its supervisor, `holdfast resume`, the command when it is given
again, another supervisor, while the driver is only asleep, or nothing: it goes on."""


@dataclass(frozen=True, kw_only=True)
class OperationDrill:
    name: str
    fault: str
    """In words."""
    moment: Moment
    operation: Operation
    injection: PythonFault
    """Where the operation waits for the blow."""
    victim: Victim
    blow: Literal["kill", "pause"] = "kill"
    command_fails: bool
    """Whether the command that is under way ends with an error. It is then given again."""
    recovery: Recovery
    ends: Ended | None
    """How the attempt that is struck must end; None: none is."""

    @property
    def on_cluster(self) -> bool:
        return self.victim == "executor"


def _at(point: str, action: PythonAction = "wait") -> PythonFault:
    return PythonFault(point=point, action=action, on_pass=1)


_OPERATIONS: dict[Moment, Operation] = {
    Moment.M7: "savepoint",
    Moment.M8: "rollback",
    Moment.M9: "rescale",
}


def _drill(
    moment: Moment,
    name: str,
    fault: str,
    victim: Victim,
    *,
    injection: PythonFault,
    blow: Literal["kill", "pause"] = "kill",
    command_fails: bool = False,
    recovery: Recovery = "restart",
    ends: Ended | None = None,
) -> OperationDrill:
    return OperationDrill(
        name=f"{name}-{moment.lower()}",
        fault=fault,
        moment=moment,
        operation=_OPERATIONS[moment],
        injection=injection,
        victim=victim,
        blow=blow,
        command_fails=command_fails,
        recovery=recovery,
        ends=ends,
    )


def _of_the_job(moment: Moment, point: str) -> tuple[OperationDrill, ...]:
    """What can happen to the job at a point where somebody waits for it."""
    waits = _at(point)
    return (
        _drill(
            moment,
            "driver-kill",
            "driver and JVM, kill -9",
            "driver",
            injection=waits,
            ends=endings.DIED,
        ),
        _drill(
            moment,
            "driver-python-kill",
            "driver's Python, kill -9",
            "python",
            injection=waits,
            ends=endings.DIED,
        ),
        _drill(
            moment,
            "driver-jvm-kill",
            "driver's JVM alone, kill -9",
            "jvm",
            injection=waits,
            ends=endings.JVM_DIED,
        ),
        _drill(
            moment,
            "driver-pause",
            "driver stopped, supervised",
            "driver",
            injection=waits,
            blow="pause",
            ends=endings.HUNG,
        ),
        _drill(
            moment,
            "executor-kill",
            "executor alone, kill -9",
            "executor",
            injection=waits,
            recovery="itself",
        ),
        _drill(
            moment,
            "supervisor-kill",
            "supervisor, kill -9",
            "supervisor",
            injection=waits,
            # It is the command that takes a savepoint; anything else is done by the job.
            command_fails=moment is not Moment.M7,
            recovery="resume" if moment is Moment.M7 else "repeat",
            ends=endings.LOST,
        ),
    )


def _of_the_savepoint() -> tuple[OperationDrill, ...]:
    """What can happen to the command that takes it."""
    point = "savepoint.before_manifest"
    return (
        _drill(
            Moment.M7,
            "command-kill",
            "savepoint command, kill -9",
            "command",
            injection=_at(point),
            command_fails=True,
        ),
        _drill(
            Moment.M7,
            "savepoint-full",
            "disk of the savepoints full (ENOSPC)",
            "nobody",
            injection=_at(point, "enospc"),
            command_fails=True,
        ),
        _drill(
            Moment.M7,
            "savepoint-eio",
            "savepoint cannot be written (EIO)",
            "nobody",
            injection=_at(point, "eio"),
            command_fails=True,
        ),
    )


def _of_the_restore(
    moment: Moment, in_driver: str, in_command: str
) -> tuple[OperationDrill, ...]:
    """What else can happen while the job goes on from a savepoint in another way: the driver
    carries that out."""
    return (
        _drill(
            moment,
            "driver-oom",
            "heap of the driver's JVM used up",
            "nobody",
            injection=_at(in_driver, "oom"),
            ends=endings.OUT_OF_MEMORY,
        ),
        _drill(
            moment,
            "restore-eio",
            "copy of the state cannot be written (EIO)",
            "nobody",
            injection=_at(in_driver, "eio"),
            ends=endings.UNWRITABLE,
        ),
        _drill(
            moment,
            "driver-zombie",
            "driver stopped, wakes up after its replacement",
            "driver",
            injection=_at(in_driver),
            blow="pause",
            command_fails=True,
            recovery="takeover",
            ends=endings.FENCED,
        ),
        _drill(
            moment,
            "command-kill",
            f"{_OPERATIONS[moment]} command, kill -9 when the job is stopped",
            "command",
            injection=_at(in_command),
            command_fails=True,
            recovery="repeat",
        ),
    )


OPERATION_DRILLS: tuple[OperationDrill, ...] = (
    *_of_the_savepoint(),
    *_of_the_job(Moment.M7, "copy.linked"),
    *_of_the_job(Moment.M8, "restore.copied"),
    *_of_the_restore(Moment.M8, "restore.copied", "operation.suspended"),
    *_of_the_job(Moment.M9, "restore.rescaled"),
    *_of_the_restore(Moment.M9, "restore.rescaled", "operation.saved"),
)
