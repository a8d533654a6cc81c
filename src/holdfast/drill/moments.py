"""The moments at which a fault can strike, and where those of an epoch are found.

Inside the JVM a moment is a file operation on the checkpoint; in the driver's Python it is a
named fault point. All of an epoch are in the same one, when some epochs have been committed and
some are still to come. M7 to M9 are moments of an operation on the job.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from holdfast.drill.crash_points import At, CrashPoint, DiskError
from holdfast.drill.python_faults import PythonAction, PythonFault

EPOCH = 2
"""The epoch that the faults strike."""
STATE_PARTITIONS = 2
"""An epoch writes the next version of the state, one file per partition."""


class Moment(StrEnum):
    """M1 to M6 in the order in which an epoch passes them."""

    M1 = "M1"
    M2 = "M2"
    M3 = "M3"
    M4 = "M4"
    M5 = "M5"
    M6 = "M6"
    M7 = "M7"
    M8 = "M8"
    M9 = "M9"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Moment.M1: "before the epoch's input is fixed",
    Moment.M2: "after its input is fixed",
    Moment.M3: "while the state is being committed",
    Moment.M4: "after the state is committed",
    Moment.M5: "while the sink is being committed",
    Moment.M6: "after the sink, before the epoch is committed",
    Moment.M7: "while a savepoint is being taken",
    Moment.M8: "while the job is being taken back to a savepoint",
    Moment.M9: "while the job is being rescaled",
}

OF_AN_EPOCH = (Moment.M1, Moment.M2, Moment.M3, Moment.M4, Moment.M5, Moment.M6)

_FILES: dict[Moment, tuple[At, str, int]] = {
    Moment.M1: ("before rename", f"offsets/{EPOCH}", 1),
    Moment.M2: ("after rename", f"offsets/{EPOCH}", 1),
    # Of one partition the new state is there, of the other one it may not be.
    Moment.M3: ("after rename", f"state/0/*/{EPOCH + 1}_*.changelog", 1),
    Moment.M4: ("after rename", f"state/0/*/{EPOCH + 1}_*.changelog", STATE_PARTITIONS),
    Moment.M6: ("before rename", f"commits/{EPOCH}", 1),
}
"""When which file of the checkpoint gets its name, and for the how many-th time."""

_TEMPORARY = {
    Moment.M1: f"offsets/.{EPOCH}.*.tmp",
    Moment.M3: f"state/0/*/.{EPOCH + 1}_*.changelog.????????-*.tmp",  # not its checksum
    Moment.M6: f"commits/.{EPOCH}.*.tmp",
}
"""The files that are written first."""

_POINTS = {
    Moment.M2: "epoch.start",
    Moment.M5: "sink.mid_publication",
    Moment.M6: "epoch.end",
}
"""In the driver's Python, passed once per epoch."""


def jvm_kill(moment: Moment) -> CrashPoint:
    """SIGKILL to the JVM and the driver's Python, from within the JVM."""
    return _at_file(moment, "kill")


def waits(moment: Moment) -> CrashPoint | PythonFault:
    """Nothing goes on at the moment until the gate is opened, or whoever waits is struck."""
    if moment in _POINTS:
        return driver_fault(moment, "wait")
    return _at_file(moment, "gate")


def _at_file(moment: Moment, action: Literal["kill", "gate"]) -> CrashPoint:
    at, path, nth = _FILES[moment]
    return CrashPoint(at=at, pattern=f"*/checkpoint/{path}", action=action, nth=nth)


def disk_error(moment: Moment, error: DiskError) -> CrashPoint:
    """A file of the checkpoint cannot be written."""
    # Not the rename: Hadoop copies the file when a rename fails.
    return CrashPoint(
        at="before open", pattern=f"*/checkpoint/{_TEMPORARY[moment]}", action=error
    )


def driver_fault(moment: Moment, action: PythonAction) -> PythonFault:
    """Something happens to the driver's Python."""
    return PythonFault(point=_POINTS[moment], action=action, on_pass=EPOCH + 1)
