"""``hf.windows``: which windows a record belongs to.

Tumbling and sliding windows lie on a grid that begins in 1970, in UTC, as those of Spark's
``window()`` do. Sessions lie where the records are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.types import parse_duration

__all__ = ["Session", "Sliding", "Tumbling", "Window"]

Firing = Literal["early", "on_time", "late"]
Duration = str | timedelta | float

_MICROSECOND = timedelta(microseconds=1)
_UNITS = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
)


@dataclass(frozen=True, slots=True)
class Window:
    """A window whose result is asked for.

    It covers the time from `start` up to, but not including, `end`. `firing` says why the
    result is asked for: "early" (the window goes on), "on_time" (the watermark has reached its
    end) or "late" (a record came after that).
    """

    start: datetime
    end: datetime
    firing: Firing


@dataclass(frozen=True, repr=False)
class AlignedWindows:
    """Windows of one length on a grid; all numbers in microseconds."""

    size: int
    every: int
    offset: int

    def starts(self, time: int) -> range:
        """Where the windows begin that a time belongs to, earliest first."""
        latest = time - (time - self.offset) % self.every
        earliest = latest - (self.size - 1 - (time - latest)) // self.every * self.every
        return range(earliest, latest + 1, self.every)

    def __repr__(self) -> str:
        every = f", every={duration_text(self.every)!r}" if self.every != self.size else ""
        offset = f", offset={duration_text(self.offset)!r}" if self.offset else ""
        return f"{type(self).__name__}({duration_text(self.size)!r}{every}{offset})"


@dataclass(frozen=True, init=False, repr=False)
class Tumbling(AlignedWindows):
    """Windows one after the other: ``hf.windows.Tumbling("5 min")``.

    `offset` moves the grid: ``Tumbling("1 d", offset="-1 h")`` are the days of a time zone that
    is one hour ahead of UTC.
    """

    def __init__(self, size: Duration, *, offset: Duration = 0) -> None:
        length = _length(size, "size of a window")
        super().__init__(length, length, _micros(offset, "offset of windows") % length)


@dataclass(frozen=True, init=False, repr=False)
class Sliding(AlignedWindows):
    """Windows that overlap: ``hf.windows.Sliding("5 min", every="1 min")``.

    A window of the length `size` begins every `every`, so a record belongs to several of them.
    """

    def __init__(self, size: Duration, every: Duration, *, offset: Duration = 0) -> None:
        length, step = _length(size, "size of a window"), _length(every, "every of windows")
        if step > length:
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"windows of {duration_text(length)} every {duration_text(step)} leave gaps: "
                "records in between would belong to no window.",
                fix="give an `every` that is not longer than the size.",
            )
        super().__init__(length, step, _micros(offset, "offset of windows") % step)


@dataclass(frozen=True, init=False, repr=False)
class Session:
    """Windows that last as long as records keep coming: ``hf.windows.Session("10 min")``.

    Records that are at most `gap` apart belong to the same session. It ends `gap` after its
    last record.
    """

    gap: int

    def __init__(self, gap: Duration) -> None:
        object.__setattr__(self, "gap", _length(gap, "gap of sessions"))

    def __repr__(self) -> str:
        return f"Session({duration_text(self.gap)!r})"


Windows = AlignedWindows | Session


def duration_text(length: int) -> str:
    """Microseconds in the largest unit in which they are a whole number."""
    for name, unit in _UNITS:
        if length % unit == 0 and length:
            return f"{length // unit} {name}"
    return "0 s"


def _micros(duration: Duration, what: str) -> int:
    if isinstance(duration, str) and duration.strip().startswith("-"):
        return -_micros(duration.strip()[1:], what)
    return parse_duration(duration, what) // _MICROSECOND


def _length(duration: Duration, what: str) -> int:
    length = _micros(duration, what)
    if length <= 0:
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"the {what} is {shorten(duration)}.",
            fix="give a duration above zero.",
        )
    return length
