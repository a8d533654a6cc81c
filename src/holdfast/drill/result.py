"""The result of a drill, from its start to its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.drill.catalogue import AnyDrill
from holdfast.drill.drills import Drill
from holdfast.drill.operation_play import play_operation
from holdfast.drill.play import play
from holdfast.drill.verdict import Seen, objections
from holdfast.errors import HoldfastError

CANNOT_BE_RUN = {"NO_C_COMPILER", "CRASH_POINTS_NOT_BUILT"}
"""The machine lacks something: that proves nothing about holdfast, either way."""

Outcome = Literal["passed", "FAILED", "not run"]


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    drill: AnyDrill
    outcome: Outcome
    reasons: tuple[str, ...]
    """Why it has failed or was not run."""
    seen: Seen | None
    seconds: float
    directory: str

    def to_dict(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "drill": self.drill.name,
            "fault": self.drill.fault,
            "moment": self.drill.moment.value,
            "fired": list(seen.fired) if seen else [],
            "attempts": [asdict(each) for each in seen.attempts] if seen else [],
            "outcome": self.outcome,
            "reasons": list(self.reasons),
            "exact": seen.exact if seen else None,
            "seconds": self.seconds,
            "directory": self.directory,
        }


def play_any(drill: AnyDrill, directory: Path) -> Seen:
    if isinstance(drill, Drill):
        return play(drill, directory)
    return play_operation(drill, directory)


def run_drill(
    drill: AnyDrill,
    directory: Path,
    *,
    carry_out: Callable[[AnyDrill, Path], Seen] = play_any,
) -> DrillResult:
    """Whatever goes wrong is the drill's result, and the next one can be run."""
    began = time.monotonic()
    seen: Seen | None = None
    outcome: Outcome
    try:
        seen = carry_out(drill, directory)
        reasons = objections(drill, seen)
        outcome = "FAILED" if reasons else "passed"
    except HoldfastError as error:
        reasons = (str(error),)
        outcome = "not run" if error.name in CANNOT_BE_RUN else "FAILED"
    return DrillResult(
        drill=drill,
        outcome=outcome,
        reasons=reasons,
        seen=seen,
        seconds=round(time.monotonic() - began, 1),
        directory=str(directory),
    )
