"""Where edits go to: a topic of Kafka, or a file log."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from holdfast.errors import RunFailedError, UsageError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.filelog import FileLogProducer
from holdfast.storage.kafka import KafkaAdmin, NewTopic, client
from holdfast.storage.references import resolve
from holdfast.wikipedia.edit import Edit

_PATIENCE_SECONDS = 60.0
_POLL_EVERY = 1_000


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
        self._topic = topic
        KafkaAdmin(access).create([NewTopic(name=topic, partitions=partitions)])
        self._failed: list[Any] = []
        self._sent = 0
        self._producer = client().Producer(
            {
                **access.client_settings(resolve),
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        left = self._producer.flush(_PATIENCE_SECONDS)
        if kind is None:
            self._require_delivered()
            if left:
                raise RunFailedError(
                    "EDITS_NOT_SENT",
                    f"{left:,} edits are not in topic {self._topic!r} after "
                    f"{_PATIENCE_SECONDS:g} s.",
                    fix="is the broker there?",
                )

    def send(self, edit: Edit) -> None:
        key = None if edit.user is None else edit.user.encode()
        while True:
            try:
                self._producer.produce(
                    self._topic, edit.to_json().encode(), key, on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)
            self._require_delivered()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _require_delivered(self) -> None:
        if self._failed:
            raise RunFailedError(
                "EDITS_NOT_SENT",
                f"topic {self._topic!r} refused {len(self._failed):,} edits: "
                f"{self._failed[0].str()}.",
                fix="look after the broker and the topic.",
            )


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
