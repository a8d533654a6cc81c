"""Writes epoch records to the registry without ever holding up the query.

The engine calls `put` from Spark's listener; a daemon thread does the writing. History
is worth having, never worth stopping a job for: when the registry is full, locked or
gone, records are counted as dropped and the job runs on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from holdfast.checkpoint.record import EpochRecord
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.control.registry import Registry

logger = logging.getLogger(__name__)

BATCH_SIZE = 200
FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0


class HistoryWriter:
    """A queue in front of `Registry.save_epochs`.

    `capacity` bounds the memory that a stuck registry can cost; `retry_seconds` is how
    long one batch is tried again while the database is locked.
    """

    def __init__(
        self,
        registry: Registry,
        job_id: str,
        *,
        capacity: int = 10_000,
        retry_seconds: float = 60.0,
    ) -> None:
        self._registry = registry
        self._job_id = job_id
        self._capacity = capacity
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._waiting: deque[EpochRecord] = deque()
        self._in_flight = 0
        self._close_by: float | None = None
        self._abandoned = False
        self._dropped = 0
        self._warned = False
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-history-{job_id}", daemon=True
        )
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many records never reached the registry."""
        return self._dropped

    def put(self, record: EpochRecord) -> None:
        """Hand over a record; returns at once, whatever the registry does."""
        with self._changed:
            accepted = self._close_by is None and len(self._waiting) < self._capacity
            if accepted:
                self._waiting.append(record)
                self._changed.notify_all()
        if not accepted:
            self._drop(1, "its queue is full or closed")

    def close(self, timeout: float = 10.0) -> None:
        """Write what is waiting, for at most `timeout` seconds; the rest is dropped."""
        with self._changed:
            if self._close_by is None:
                self._close_by = time.monotonic() + timeout
            self._changed.notify_all()
        self._thread.join(timeout)
        with self._changed:
            # A batch that is still stuck in the database counts as lost: nobody will be
            # there to see it arrive.
            left = 0 if self._abandoned else len(self._waiting) + self._in_flight
            self._waiting.clear()
            self._abandoned = True
        if left:
            self._drop(left, "the job ended before they were written")

    def _run(self) -> None:
        while batch := self._take():
            reason = self._write(batch)
            with self._changed:
                self._in_flight = 0
                abandoned = self._abandoned
            if reason and not abandoned:
                self._drop(len(batch), reason)

    def _take(self) -> list[EpochRecord]:
        """The next batch; empty when closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._close_by is not None)
            self._in_flight = min(BATCH_SIZE, len(self._waiting))
            return [self._waiting.popleft() for _ in range(self._in_flight)]

    def _write(self, batch: list[EpochRecord]) -> str | None:
        """None, or why the batch could not be written."""
        give_up = time.monotonic() + self._retry_seconds
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                self._registry.save_epochs(self._job_id, batch)
            except HoldfastError as error:
                late = time.monotonic() > min(give_up, self._deadline())
                if error.name != "REGISTRY_BUSY" or late:
                    return str(error)
                self._pause(delay)
                delay = min(delay * 2, LONGEST_RETRY_SECONDS)
            except Exception as error:  # a bug here must not cost the job its life
                return f"{type(error).__name__}: {error}"
            else:
                return None

    def _deadline(self) -> float:
        return float("inf") if self._close_by is None else self._close_by

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._close_by is None:
                self._changed.wait_for(lambda: self._close_by is not None, timeout=seconds)
                return
        # Once closing there is nothing left to wake up for.
        time.sleep(min(seconds, max(0.0, self._deadline() - time.monotonic())))

    def _drop(self, count: int, reason: str) -> None:
        with self._changed:
            self._dropped += count
            first, self._warned = not self._warned, True
        if first:
            logger.warning(
                "epoch history incomplete job=%s dropped=%d reason=%r; the job runs on, "
                "later losses are counted but not logged",
                self._job_id,
                count,
                reason,
            )
