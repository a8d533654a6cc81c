"""When Spark is to look at a key group."""

from __future__ import annotations

import pytest

from holdfast.state.times import EpochTime
from holdfast.state.wake import SOON, next_timer, wanted_wake

NOW = EpochTime(now=5_000_000, watermark=2_000_000)


@pytest.mark.parametrize(
    ("event", "processing", "mode", "wanted"),
    [
        (None, None, "EventTime", None),
        (2_000_001, None, "EventTime", 2_001),  # never before it is due
        (2_000_000, None, "EventTime", SOON),
        (9_000_000, 1, "EventTime", 9_000),
        (None, 5_000_001, "ProcessingTime", 5_001),
        (None, 4_000_000, "ProcessingTime", SOON),
        (9_000_000, 9_000_000, "ProcessingTime", SOON),  # the watermark may come any time
    ],
)
def test_when_a_group_wants_to_be_looked_at(
    event: int | None, processing: int | None, mode: str, wanted: int | None
) -> None:
    assert wanted_wake(event, processing, mode, NOW) == wanted


@pytest.mark.parametrize(
    ("registered", "wanted", "fired", "timer"),
    [
        (None, None, None, None),
        (None, 7_000, None, 7_000),
        (7_000, 9_000, None, 7_000),  # it fires too early once, and is not moved
        (9_000, 7_000, None, 7_000),
        (7_000, None, None, 7_000),
        (7_000, None, 7_000, None),
        (7_000, 9_000, 7_000, 9_000),
        (SOON, SOON, SOON, SOON + 1),  # Spark deletes the one that fired
        (SOON + 1, SOON, SOON + 1, SOON),
        (SOON + 1, SOON, None, SOON + 1),  # one of them is enough
        (9_000, SOON, 7_000, SOON),
    ],
)
def test_which_timer_spark_should_hold(
    registered: int | None, wanted: int | None, fired: int | None, timer: int | None
) -> None:
    assert next_timer(registered, wanted, fired) == timer
