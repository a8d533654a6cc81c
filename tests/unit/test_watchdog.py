"""When a driver counts as hung."""

from __future__ import annotations

import pytest

from holdfast.control.watchdog import Signs, overdue


@pytest.mark.parametrize(
    ("signs", "now", "timeout", "expected"),
    [
        (Signs(heard=0), 30, None, None),
        (Signs(heard=0), 31, None, "DRIVER_HUNG"),
        (Signs(heard=100, epoch=3, epoch_began=0), 100, None, None),
        (Signs(heard=100, epoch=3, epoch_began=90), 100, 10, None),
        (Signs(heard=100, epoch=3, epoch_began=89), 100, 10, "EPOCH_TIMEOUT"),
        (Signs(heard=100, epoch=3), 100, 10, None),
        (Signs(heard=100, epoch=3, epoch_began=0, waiting=True), 100, 10, None),
    ],
)
def test_overdue(signs: Signs, now: float, timeout: float | None, expected: str | None) -> None:
    error = overdue(signs, now, epoch_timeout=timeout)
    assert (error.name if error else None) == expected


def test_a_start_takes_as_long_as_it_may() -> None:
    starting = Signs(heard=99, starting_since=0)
    assert overdue(starting, 100, epoch_timeout=None, start_timeout=100) is None
    late = overdue(starting, 101, epoch_timeout=None, start_timeout=100)
    assert late is not None
    assert late.name == "START_TIMEOUT"
    assert overdue(starting.started(), 101, epoch_timeout=None, start_timeout=100) is None


def test_the_end_of_an_epoch_is_not_that_of_the_next_one() -> None:
    both = Signs(heard=0).epoch_started(1, 5).epoch_started(2, 10)
    assert both.epoch_ended(1).epoch_began == 10
    assert both.epoch_ended(2).epoch_began is None


def test_a_wait_for_executors_is_not_the_epochs_fault() -> None:
    waiting = Signs(heard=0).epoch_started(1, 5).executors_gone()
    assert overdue(waiting, 20, epoch_timeout=10) is None
    back = waiting.executors_back(20)
    assert overdue(back, 29, epoch_timeout=10) is None
    late = overdue(back, 31, epoch_timeout=10, heartbeat_timeout=100)
    assert late is not None
    assert late.name == "EPOCH_TIMEOUT"
    assert Signs(heard=0).executors_gone().executors_back(3).epoch_began is None


def test_work_before_an_epoch_begins_counts() -> None:
    stuck = Signs(heard=0).trigger(True, 5).trigger(True, 6)
    late = overdue(stuck, 16, epoch_timeout=10)
    assert late is not None
    assert late.name == "EPOCH_TIMEOUT"
    assert stuck.trigger(False, 7).epoch_began is None
    # One that goes on does not begin anew, one that follows does.
    assert stuck.epoch_started(1, 8).trigger(True, 9).epoch_began == 8
    assert stuck.epoch_started(1, 8).epoch_ended(1).trigger(True, 9).epoch_began == 9
