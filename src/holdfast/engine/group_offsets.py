"""Tells Kafka how far a job has read, so that Kafka's own tools can show its lag.

The position that counts is in the checkpoint. This is a courtesy: it comes after the commit of
an epoch, in a thread of its own, and if it fails nothing happens to the job. The same thread
looks whether Kafka has deleted what comes next, where the job is to go on without: Spark would
do so without a word.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.checkpoint.kafka_positions import Position, is_position, lost_records
from holdfast.checkpoint.record import EpochRecord, JobEvent
from holdfast.engine.kafka_start import loss_event
from holdfast.errors import HoldfastError
from holdfast.sources import Kafka
from holdfast.sources.base import Source
from holdfast.storage.kafka import KafkaAdmin

_LAST_SECONDS = 5.0

logger = logging.getLogger(__name__)


class GroupOffsets:
    """The consumer groups of a job's Kafka sources. Only the newest position is of interest."""

    def __init__(
        self,
        job: str,
        sources: Mapping[str, Source],
        on_event: Callable[[JobEvent], None] = lambda event: None,
    ) -> None:
        self._sources = {uid: each for uid, each in sources.items() if isinstance(each, Kafka)}
        self._job, self._on_event = job, on_event
        self._told: dict[tuple[str, int], int] = {}
        """Up to which offset a partition's losses were told."""
        self._admins: dict[str, KafkaAdmin] = {}
        self._waiting: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kafka groups", daemon=True)
        if self._sources:
            self._thread.start()

    def put(self, record: EpochRecord) -> None:
        """A committed epoch; returns at once."""
        with self._changed:
            for uid in self._sources:
                if is_position(record.offsets.get(uid)):
                    self._waiting[uid] = record.offsets[uid]
            self._changed.notify()

    def close(self) -> None:
        """Let the last position be told, if the broker is quick."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._sources:
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                waiting, self._waiting = self._waiting, {}
            for uid, position in waiting.items():
                self._tell(uid, position)

    def _tell(self, uid: str, position: Any) -> None:
        source = self._sources[uid]
        try:
            admin = self._admins.get(uid) or KafkaAdmin(source.access)
            self._admins[uid] = admin
            admin.commit_group(source.group(self._job), position)
            if source.on_data_loss == "continue":
                self._tell_losses(uid, admin, position)
        except Exception as error:  # whatever it is, the job goes on
            with suppress(KeyError):
                del self._admins[uid]
            name = error.name if isinstance(error, HoldfastError) else type(error).__name__
            logger.warning("kafka group not told source=%s reason=%s", uid, name)

    def _tell_losses(self, uid: str, admin: KafkaAdmin, position: Position) -> None:
        known = admin.topics()
        partitions = {topic: known[topic] for topic in position if topic in known}
        ends = admin.earliest(partitions), admin.latest(partitions)
        lost = [
            each
            for each in lost_records(position, *ends)
            if each.records and self._told.get((each.topic, each.partition)) != each.until
        ]
        if lost:
            self._told |= {(each.topic, each.partition): each.until or 0 for each in lost}
            self._on_event(loss_event(uid, lost))
