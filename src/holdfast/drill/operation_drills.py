"""Drills in an operation on a job: who is struck on its way, and what must follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.drill.drills import Ended
from holdfast.drill.moments import Moment
from holdfast.drill.python_faults import PythonAction, PythonFault

Operation = Literal["savepoint", "rollback", "rescale"]
Victim = Literal["command", "driver", "supervisor", "disk"]
"""The command that was given, the job's driver with its JVM, the job's supervisor, or nobody:
the command finds the disk full."""


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
    recovery: Literal["restart", "resume", "repeat", "takeover"]
    """What brings the job back: its supervisor, `holdfast resume`, the command when it is given
    again, or another supervisor, while the driver is only asleep."""
    ends: Ended | None
    """How the attempt that is struck must end; None: none is."""


_DIED = Ended(error="DRIVER_DIED", failure_class="lost_driver")
_LOST = Ended(error="ATTEMPT_LOST", failure_class="lost_driver")
_HUNG = Ended(error="DRIVER_HUNG", failure_class="hung")
_FENCED = Ended(error="FENCED", failure_class="conflict")


def _at(point: str, action: PythonAction = "wait") -> PythonFault:
    return PythonFault(point=point, action=action, on_pass=1)


_SAVEPOINTS = (
    OperationDrill(
        name="command-kill-m7",
        fault="savepoint command, kill -9",
        moment=Moment.M7,
        operation="savepoint",
        injection=_at("savepoint.before_manifest"),
        victim="command",
        command_fails=True,
        recovery="restart",
        ends=None,
    ),
    OperationDrill(
        name="savepoint-full-m7",
        fault="disk of the savepoints full (ENOSPC)",
        moment=Moment.M7,
        operation="savepoint",
        injection=_at("savepoint.before_manifest", "enospc"),
        victim="disk",
        command_fails=True,
        recovery="restart",
        ends=None,
    ),
    OperationDrill(
        name="driver-kill-m7",
        fault="driver and JVM, kill -9",
        moment=Moment.M7,
        operation="savepoint",
        injection=_at("copy.linked"),
        victim="driver",
        command_fails=False,
        recovery="restart",
        ends=_DIED,
    ),
    OperationDrill(
        name="supervisor-kill-m7",
        fault="supervisor, kill -9",
        moment=Moment.M7,
        operation="savepoint",
        injection=_at("copy.linked"),
        victim="supervisor",
        command_fails=False,
        recovery="resume",
        ends=_LOST,
    ),
)

_IN_DRIVER = {Moment.M8: "restore.copied", Moment.M9: "restore.rescaled"}
_IN_COMMAND = {Moment.M8: "operation.suspended", Moment.M9: "operation.saved"}


def _starts_anew(moment: Moment, operation: Operation) -> tuple[OperationDrill, ...]:
    """Both go on from a savepoint in another way, and the driver carries that out."""
    waits = _at(_IN_DRIVER[moment])
    at = moment.lower()
    return (
        OperationDrill(
            name=f"driver-kill-{at}",
            fault="driver and JVM, kill -9",
            moment=moment,
            operation=operation,
            injection=waits,
            victim="driver",
            command_fails=False,
            recovery="restart",
            ends=_DIED,
        ),
        OperationDrill(
            name=f"driver-pause-{at}",
            fault="driver stopped, supervised",
            moment=moment,
            operation=operation,
            injection=waits,
            victim="driver",
            blow="pause",
            command_fails=False,
            recovery="restart",
            ends=_HUNG,
        ),
        OperationDrill(
            name=f"driver-zombie-{at}",
            fault="driver stopped, wakes up after its replacement",
            moment=moment,
            operation=operation,
            injection=waits,
            victim="driver",
            blow="pause",
            command_fails=True,
            recovery="takeover",
            ends=_FENCED,
        ),
        OperationDrill(
            name=f"supervisor-kill-{at}",
            fault="supervisor, kill -9",
            moment=moment,
            operation=operation,
            injection=waits,
            victim="supervisor",
            command_fails=True,
            recovery="repeat",
            ends=_LOST,
        ),
        OperationDrill(
            name=f"command-kill-{at}",
            fault=f"{operation} command, kill -9 when the job is stopped",
            moment=moment,
            operation=operation,
            injection=_at(_IN_COMMAND[moment]),
            victim="command",
            command_fails=True,
            recovery="repeat",
            ends=None,
        ),
    )


OPERATION_DRILLS: tuple[OperationDrill, ...] = (
    *_SAVEPOINTS,
    *_starts_anew(Moment.M8, "rollback"),
    *_starts_anew(Moment.M9, "rescale"),
)
