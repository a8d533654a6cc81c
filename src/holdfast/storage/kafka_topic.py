"""Reading what a topic holds now, from its beginning to its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from holdfast.errors import RunFailedError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import KafkaAdmin, client
from holdfast.storage.references import resolve

_SILENCE_SECONDS = 30.0
_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class TopicRecord:
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: bytes | None
    value: bytes | None


def read_topic(
    access: KafkaAccess, topic: str, *, committed: bool = True
) -> Iterator[TopicRecord]:
    """Every record that a consumer sees, in the order of each partition.

    With `committed`, records of transactions that were aborted are left out, and it ends where
    the first transaction that is still open begins.
    """
    kafka = client()
    numbers = KafkaAdmin(access).partitions([topic])[topic]
    consumer = kafka.Consumer(
        {
            **access.client_settings(resolve),
            "group.id": f"holdfast-read-{uuid.uuid4().hex}",  # never joined
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    with closing(consumer):
        consumer.assign(
            [kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING) for number in numbers]
        )
        yield from _to_the_end(kafka, consumer, topic, set(numbers))


def _to_the_end(kafka: Any, consumer: Any, topic: str, left: set[int]) -> Iterator[TopicRecord]:
    while left:
        messages = consumer.consume(_AT_ONCE, timeout=0.5) or consumer.consume(
            1, timeout=_SILENCE_SECONDS
        )
        if not messages:
            raise RunFailedError(
                "BROKER_UNREACHABLE",
                f"topic {topic!r}: no record and no answer for {_SILENCE_SECONDS:g} s.",
                fix="is the broker there?",
            )
        for message in messages:
            error = message.error()
            if error is None:
                yield TopicRecord(
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                )
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            elif not error.retriable():
                raise kafka.KafkaException(error)
