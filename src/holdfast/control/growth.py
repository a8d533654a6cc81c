"""How fast the state of each step grows, and when it will reach its limit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.checkpoint.record import EpochRecord

_FEWEST_EPOCHS = 3


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The state of one step: what it is now, and where it goes."""

    step: str
    rows: int
    bytes: int
    rows_per_hour: float | None
    bytes_per_hour: float | None
    """None while there are too few epochs to tell."""
    hours_to_limit: float | None
    """None if it does not grow, or has no limit."""


def growth(records: Sequence[EpochRecord], limit: int | None = None) -> list[Growth]:
    """By step, from committed epochs, oldest first; `limit` is in bytes."""
    if not records:
        return []
    found = []
    for step, now in records[-1].state.items():
        sizes = [(r.started.timestamp(), r.state[step]) for r in records if step in r.state]
        rows = _per_hour([(time, size.rows) for time, size in sizes])
        size = _per_hour([(time, size.bytes) for time, size in sizes])
        hours = None
        if limit is not None and size is not None and size > 0:
            hours = max(0.0, (limit - now.bytes) / size)
        found.append(
            Growth(
                step=step,
                rows=now.rows,
                bytes=now.bytes,
                rows_per_hour=rows,
                bytes_per_hour=size,
                hours_to_limit=hours,
            )
        )
    return found


def _per_hour(points: Sequence[tuple[float, int]]) -> float | None:
    """The slope of the line through the points that misses them least."""
    if len(points) < _FEWEST_EPOCHS:
        return None
    middle = sum(time for time, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((time - middle) ** 2 for time, _ in points)
    if spread == 0:
        return None
    slope = sum((time - middle) * (value - mean) for time, value in points) / spread
    return slope * 3600
