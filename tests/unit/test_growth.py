"""How state grows, and when it reaches its limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.checkpoint.record import EpochRecord, EpochStatus, StateSize
from holdfast.control.growth import growth

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def epoch(minute: float, size: int, keys: int = 10) -> EpochRecord:
    return EpochRecord(
        epoch=int(minute),
        attempt=1,
        status=EpochStatus.COMMITTED,
        started=NOON + timedelta(minutes=minute),
        state={"totals": StateSize(rows=keys, bytes=size)},
    )


def test_limit_of_a_step_that_grows() -> None:
    [step] = growth([epoch(m, 1000 * m, 5 * m) for m in range(11)], limit=100_000)
    assert step.step == "totals"
    assert (step.rows, step.bytes) == (50, 10_000)
    assert step.rows_per_hour == pytest.approx(300)
    assert step.bytes_per_hour == pytest.approx(60_000)
    assert step.hours_to_limit == pytest.approx(1.5)


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [9, 7, 5, 3]])
def test_no_limit_where_it_does_not_grow(sizes: list[int]) -> None:
    [step] = growth([epoch(m, size) for m, size in enumerate(sizes)], limit=100)
    assert step.hours_to_limit is None
    assert step.bytes_per_hour is not None and step.bytes_per_hour <= 0


def test_too_little_to_tell() -> None:
    assert growth([]) == []
    [step] = growth([epoch(0, 1), epoch(1, 2)], limit=100)
    assert step.bytes_per_hour is None and step.hours_to_limit is None


def test_past_the_limit() -> None:
    [step] = growth([epoch(m, 1000 + m) for m in range(4)], limit=500)
    assert step.hours_to_limit == 0
