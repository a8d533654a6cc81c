"""Old operations are forgotten; new ones, and those that are not over, never."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.clock import ManualClock
from holdfast.control.registry import Registry
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.pruning import YOUNGEST, prune


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[OperationLog]:
    with Registry(f"sqlite:///{tmp_path}/registry.db") as registry:
        registry.ensure_schema()
        yield OperationLog(registry, clock)


def test_the_newest_and_the_open_ones_stay(
    log: OperationLog, clock: ManualClock, tmp_path: Path
) -> None:
    ids = []
    for number in range(6):
        operation, _ = log.add("wiki", "verify", {}, asked_by="ann", exclusive=False)
        ids.append(operation.id)
        (tmp_path / f"{operation.id}.log").touch()
        if number != 1:
            log.succeed(operation.id, {})
        clock.advance(timedelta(minutes=1))
    assert prune(log, tmp_path, kept=2, clock=clock) == 0  # all of them are of today
    clock.advance(YOUNGEST)
    assert prune(log, tmp_path, kept=10, clock=clock) == 0
    assert prune(log, tmp_path, kept=2, clock=clock) == 3
    stay = [ids[5], ids[4], ids[1]]
    assert [each.id for each in log.newest()] == stay
    assert {path.stem for path in tmp_path.glob("*.log")} == set(stay)
    assert prune(log, tmp_path, kept=2, clock=clock) == 0
