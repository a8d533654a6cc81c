"""What ``keyed.window(…)`` declares, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.event_time.windows import (
    AlignedWindows,
    Duration,
    Session,
    Windows,
    duration_text,
)
from holdfast.types import parse_duration

LateWindowPolicy = Literal["side", "drop"]
"""What becomes of a record whose windows are all gone."""

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Windowing:
    """Which windows, and when they give results; durations in microseconds."""

    windows: Windows
    allowed_lateness: int = 0
    """How long a window is kept after its end, for late records."""
    early: int | None = None
    """How often a window that goes on gives a result, in processing time."""

    @property
    def signature(self) -> str:
        """What must stay as it is while there is state: the stored windows and timers are made
        for it."""
        late = self.allowed_lateness
        return f"{self.windows}" + (f", {duration_text(late)} late" if late else "")


def declared_windowing(
    windows: object, allowed_lateness: Duration = 0, early: Duration | None = None
) -> Windowing:
    if not isinstance(windows, AlignedWindows | Session):
        raise JobDefinitionError(
            "WRONG_ARGUMENT",
            f"window got {shorten(windows)}.",
            fix='pass hf.windows.Tumbling("5 min"), Sliding("5 min", every="1 min") or '
            'Session("10 min").',
        )
    lateness = parse_duration(allowed_lateness, "allowed_lateness")
    pause = None if early is None else parse_duration(early, "early")
    if lateness < timedelta(0) or (pause is not None and pause < _MICROSECOND):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"window has allowed_lateness={shorten(allowed_lateness)}, early={shorten(early)}.",
            fix="give durations above zero, or leave them out.",
        )
    return Windowing(
        windows, lateness // _MICROSECOND, None if pause is None else pause // _MICROSECOND
    )
