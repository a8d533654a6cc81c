"""When the loss of an executor is over, and how long it took."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.checkpoint.record import EpochRecord, EpochStatus, JobEvent
from holdfast.control.losses import Losses

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lost(executor: str, seconds: float, tasks: int = 1) -> JobEvent:
    data = {"executor": executor, "tasks": tasks}
    return JobEvent(at=at(seconds), kind="executor_lost", text="", data=data)


def epoch(
    number: int, ended: float | None, status: EpochStatus = EpochStatus.COMMITTED
) -> EpochRecord:
    return EpochRecord(
        epoch=number,
        attempt=3,
        status=status,
        started=NOON,
        ended=None if ended is None else at(ended),
    )


def test_it_is_over_with_the_first_epoch_that_is_committed_after_it() -> None:
    losses = Losses()
    assert losses.over(epoch(0, 5)) is None
    losses.happened(lost("1", 10))
    assert losses.over(epoch(1, 9.9)) is None  # was already done
    assert losses.over(epoch(2, None, EpochStatus.RUNNING)) is None
    losses.happened(lost("0", 15))
    told = losses.over(epoch(2, 28.25))
    assert told is not None
    assert told.text == "epoch 2 is committed, 18.2 s after the loss of executors 1, 0."
    assert told.data == {"epoch": 2, "executors": ["1", "0"], "seconds": 18.2}
    assert (told.kind, told.attempt) == ("loss_overcome", 3)
    assert losses.over(epoch(3, 30)) is None  # said once


def test_an_executor_that_did_nothing_is_not_missed() -> None:
    losses = Losses()
    losses.happened(lost("1", 10, tasks=0))
    losses.happened(JobEvent(at=at(11), kind="executor_added", text=""))
    assert losses.over(epoch(2, 12)) is None
