"""The history writer never blocks the job and never loses a record without counting it."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.checkpoint.record import EpochRecord, EpochStatus
from holdfast.control.history import HistoryWriter
from holdfast.control.registry import Registry

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(epoch: int, status: EpochStatus = EpochStatus.COMMITTED) -> EpochRecord:
    return EpochRecord(epoch=epoch, attempt=1, status=status, started=NOW)


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


@pytest.fixture
def registry(file: Path) -> Iterator[Registry]:
    with Registry(f"sqlite:///{file}", busy_seconds=0.05) as registry:
        registry.ensure_schema()
        yield registry


@pytest.fixture
def job_id(registry: Registry) -> str:
    return registry.register_job("wiki", {}).id


@pytest.fixture
def locked(file: Path, job_id: str) -> Iterator[sqlite3.Connection]:
    """Another process' write transaction that does not end."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_close_writes_everything(registry: Registry, job_id: str) -> None:
    writer = HistoryWriter(registry, job_id)
    for epoch in range(1000):
        writer.put(record(epoch, EpochStatus.RUNNING))
        writer.put(record(epoch))
    writer.close(30)
    assert registry.epochs(job_id) == [record(epoch) for epoch in range(1000)]
    assert writer.dropped == 0


def test_records_arrive_without_close(registry: Registry, job_id: str) -> None:
    writer = HistoryWriter(registry, job_id)
    writer.put(record(1))
    wait_for(lambda: registry.last_epoch(job_id) == record(1))
    writer.put(record(2))
    wait_for(lambda: registry.last_epoch(job_id) == record(2))
    writer.close()


def test_a_locked_database_is_tried_again(
    registry: Registry, job_id: str, locked: sqlite3.Connection
) -> None:
    writer = HistoryWriter(registry, job_id)
    writer.put(record(1))
    time_of_put = time.monotonic()
    writer.put(record(2))
    assert time.monotonic() - time_of_put < 0.05, "put waited for the database"
    # Long enough for several attempts of 0.05 s each to have failed.
    wait_for(lambda: time.monotonic() > time_of_put + 0.4)
    assert registry.epochs(job_id) == []
    locked.execute("ROLLBACK")
    writer.close()
    assert registry.epochs(job_id) == [record(1), record(2)]
    assert writer.dropped == 0


def test_a_database_that_stays_locked_costs_history_only(
    registry: Registry,
    job_id: str,
    locked: sqlite3.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = HistoryWriter(registry, job_id, retry_seconds=0.1)
    with caplog.at_level(logging.WARNING, "holdfast"):
        writer.put(record(1))
        wait_for(lambda: writer.dropped == 1)
        writer.put(record(2))
        wait_for(lambda: writer.dropped == 2)
    assert len(caplog.records) == 1
    assert "REGISTRY_BUSY" in caplog.text
    locked.execute("ROLLBACK")
    writer.put(record(3))
    writer.close()
    assert registry.epochs(job_id) == [record(3)], "it goes on once the lock is gone"
    assert writer.dropped == 2


def test_close_gives_up_in_time(
    registry: Registry, job_id: str, locked: sqlite3.Connection
) -> None:
    writer = HistoryWriter(registry, job_id, retry_seconds=3600)
    for epoch in range(3):
        writer.put(record(epoch))
    started = time.monotonic()
    writer.close(0.3)
    assert time.monotonic() - started < 5
    assert writer.dropped == 3


def test_a_broken_registry_does_not_stop_the_job(
    registry: Registry, job_id: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("DROP TABLE epochs")
    writer = HistoryWriter(registry, job_id)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for epoch in range(5):
            writer.put(record(epoch))
            wait_for(lambda: writer.dropped == epoch + 1)  # noqa: B023
        writer.close()
    assert writer.dropped == 5
    assert len(caplog.records) == 1
    assert "REGISTRY_UNAVAILABLE" in caplog.text


def test_a_full_disk_does_not_stop_the_job(registry: Registry, job_id: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        pages = other.execute("PRAGMA page_count").fetchone()[0]
    # SQLite's own limit gives the error of a full disk: SQLITE_FULL.
    with registry._database.read() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    writer = HistoryWriter(registry, job_id)
    for epoch in range(5000):
        writer.put(record(epoch))
    writer.close(30)
    assert writer.dropped > 0
    assert writer.dropped + len(registry.epochs(job_id)) == 5000


def test_a_full_queue_drops_and_counts(
    registry: Registry, job_id: str, locked: sqlite3.Connection
) -> None:
    writer = HistoryWriter(registry, job_id, capacity=10)
    for epoch in range(500):
        writer.put(record(epoch))
    # The queue's ten, and whatever the thread had taken before it met the lock.
    assert 500 - 2 * 10 <= writer.dropped <= 490
    locked.execute("ROLLBACK")
    writer.close()
    assert writer.dropped + len(registry.epochs(job_id)) == 500


def test_put_after_close_is_counted(registry: Registry, job_id: str) -> None:
    writer = HistoryWriter(registry, job_id)
    writer.close()
    writer.put(record(1))
    assert writer.dropped == 1
    writer.close()
    assert writer.dropped == 1
