"""Sending records to a topic, each of them once."""

from __future__ import annotations

from typing import Any, Self

from holdfast.errors import RunFailedError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import client
from holdfast.storage.references import resolve

_PATIENCE_SECONDS = 60.0
_POLL_EVERY = 1_000


class TopicProducer:
    """Records with the same key go to the same partition, and stay in order.

    Leaving the ``with`` block waits until the broker has them all.
    """

    def __init__(self, access: KafkaAccess, topic: str) -> None:
        self._topic = topic
        self._failed: list[Any] = []
        self._sent = 0
        self._producer = client().Producer(
            {
                **access.client_settings(resolve),
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",  # as Java's; an empty key is a key
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
        else:
            self._producer.flush(_PATIENCE_SECONDS)

    def send(self, value: bytes, key: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)
            self._require_delivered()

    def flush(self) -> None:
        left = self._producer.flush(_PATIENCE_SECONDS)
        self._require_delivered()
        if left:
            raise RunFailedError(
                "RECORDS_NOT_SENT",
                f"{left:,} records are not in topic {self._topic!r} after "
                f"{_PATIENCE_SECONDS:g} s.",
                fix="is the broker there?",
            )

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _require_delivered(self) -> None:
        if self._failed:
            raise RunFailedError(
                "RECORDS_NOT_SENT",
                f"topic {self._topic!r} refused {len(self._failed):,} records: "
                f"{self._failed[0].str()}.",
                fix="look after the broker and the topic.",
            )
