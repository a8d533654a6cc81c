"""Time as the core sees it: whole microseconds since 1970, and which clocks there are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Clock = Literal["event", "processing"]
EVENT: Clock = "event"
PROCESSING: Clock = "processing"
CLOCKS: tuple[Clock, ...] = (EVENT, PROCESSING)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DISTANT_PAST = -(2**62)


@dataclass(frozen=True)
class EpochTime:
    """What time it is during an epoch. It stands still: a repeated epoch sees the same."""

    now: int | None = None
    """Processing time, when the epoch began."""
    watermark: int | None = None
    """No event at or before it is expected any more; None before there was any event."""
    epoch: int | None = None

    def of(self, clock: Clock) -> int:
        """A clock's reading; one that has not started yet lies before everything."""
        reading = self.watermark if clock == EVENT else self.now
        return _DISTANT_PAST if reading is None else reading


NO_TIME = EpochTime()
"""In a step that has nothing to do with time."""


def micros(moment: Any, what: str = "a time") -> int:
    """Microseconds of an aware datetime."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{what} is {moment!r}; use a datetime with a time zone")
    if moment.tzinfo is None:
        raise TypeError(f"{what} is {moment!r}, which has no time zone; use UTC")
    return (moment - _EPOCH) // _MICROSECOND


def moment(time: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time)
