"""Where edits go to: a topic of Kafka, or a file log."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from holdfast.errors import UsageError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.filelog import FileLogProducer
from holdfast.storage.kafka import KafkaAdmin, NewTopic
from holdfast.storage.kafka_producer import TopicProducer
from holdfast.wikipedia.edit import Edit


class Target(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def send(self, edit: Edit) -> None: ...


class FileLogTarget:
    def __init__(self, path: Path) -> None:
        self._log = FileLogProducer(path, producer_id="wikipedia")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def send(self, edit: Edit) -> None:
        self._log.send(vars(edit))


class KafkaTarget:
    """Keyed by user, so that a user's edits stay in order; each is in the topic once."""

    def __init__(self, topic: str, access: KafkaAccess, *, partitions: int) -> None:
        KafkaAdmin(access).create([NewTopic(name=topic, partitions=partitions)])
        self._producer = TopicProducer(access, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._producer.__exit__(kind, *rest)

    def send(self, edit: Edit) -> None:
        key = None if edit.user is None else edit.user.encode()
        self._producer.send(edit.to_json().encode(), key)


def parse_target(text: str) -> tuple[str, str]:
    """`kafka:TOPIC` or `filelog:DIR`."""
    kind, colon, name = text.partition(":")
    if kind not in ("kafka", "filelog") or not colon or not name:
        raise UsageError(
            "INVALID_TARGET",
            f"--to is {json.dumps(text)}.",
            fix="write kafka:TOPIC or filelog:DIR.",
        )
    return kind, name
