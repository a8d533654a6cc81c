"""The demo on Kafka: a broker of its own, edits in one topic, balances in another.

A topic cannot be taken back. After the rollback the job writes to a new one, which has to hold
exactly what the first one got after the savepoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.control.kafka.broker import LocalBroker
from holdfast.demo.kafka_job import BALANCES, EDITS, PER_EPOCH_VARIABLE, SERVERS_VARIABLE
from holdfast.demo.place import THIRD, DemoPlace, Progress
from holdfast.demo.producer import SEGMENTS
from holdfast.demo.proof import Check, Proof, prove_files
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import KafkaAdmin, NewTopic, client
from holdfast.storage.kafka_producer import TopicProducer
from holdfast.storage.kafka_topic import read_topic

AFTER_ROLLBACK = f"{BALANCES}.{THIRD}"
_LOOK_SECONDS = 1.0
_AT_ONCE = 10_000
_COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("edit", pa.int64()),
        ("nth", pa.int64()),
        ("total", pa.int64()),
        ("kilobytes", pa.float64()),
    ]
)


class KafkaStage:
    job_file = Path(__file__).with_name("kafka_job.py")
    second_version = Path(__file__).with_name("kafka_kilobytes.py")
    reader = "what a consumer sees in the topics"
    rollback_sink = "new"
    source = f"the topic {EDITS!r}"

    def __init__(self, place: DemoPlace, cache: Path, edits: int) -> None:
        self._place = place
        # As files: five segments of the stream.
        place.environment[PER_EPOCH_VARIABLE] = str(edits * 5 // SEGMENTS)
        self._broker = LocalBroker(place.directory, cache=cache)
        self.progress: Progress = KafkaProgress(place)

    @property
    def _access(self) -> KafkaAccess:
        return KafkaAccess(servers=self._place.environment[SERVERS_VARIABLE])

    @contextmanager
    def prepared(self) -> Iterator[None]:
        address = self._broker.up().address
        try:
            self._place.environment[SERVERS_VARIABLE] = address
            KafkaAdmin(self._access).create(
                NewTopic(name=name, partitions=2) for name in (EDITS, BALANCES)
            )
            yield
        finally:
            self._broker.down()

    def edit_log(self) -> KafkaLog:
        return KafkaLog(self._access)

    def prove(self, edits: int) -> Proof:
        """Of files with what a consumer sees, so that they can be looked at afterwards."""
        place = self._place
        log = place.edits / "topic.jsonl"
        with log.open("wb") as lines:
            lines.writelines((each.value or b"") + b"\n" for each in self._read(EDITS))
        place.balances.mkdir()
        rows = {name: self._rows(name) for name in (BALANCES, AFTER_ROLLBACK)}
        for name, found in rows.items():
            table = pa.Table.from_pylist(found, _COLUMNS)
            pq.write_table(table, place.balances / f"{name}.parquet")
        proof = prove_files([str(log)], [str(place.balances / f"{BALANCES}.parquet")], edits)
        again = {tuple(row.items()) for row in rows[AFTER_ROLLBACK]}
        before = {tuple(row.items()) for row in rows[BALANCES]}
        checks = (
            Check(
                what="rows in the topic of the rollback that the first one has not",
                expected=0,
                found=len(again - before),
            ),
            Check(
                what="rows since the savepoint, and again after the rollback",
                expected=edits - self.progress.at_savepoint,
                found=len(rows[AFTER_ROLLBACK]),
            ),
        )
        return replace(proof, checks=(*proof.checks, *checks))

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(each.value or b"{}") for each in self._read(topic)]

    def _read(self, topic: str) -> Iterator[Any]:
        return read_topic(self._access, topic)


class KafkaLog:
    """A user's edits always go to the same partition, and stay in order: those of users who
    are hidden, too."""

    def __init__(self, access: KafkaAccess) -> None:
        self._producer = TopicProducer(access, EDITS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.__exit__(kind, error, traceback)

    def send(self, edit: Mapping[str, Any]) -> None:
        self._producer.send(json.dumps(edit).encode(), (edit["user"] or "").encode())

    def flush(self) -> None:
        self._producer.flush()


class KafkaProgress(Progress):
    """What a consumer with read_committed has seen."""

    def __init__(self, place: DemoPlace) -> None:
        super().__init__(place)
        self._counts: dict[str, _TopicCount] = {}
        self._looked = 0.0

    @property
    def rows(self) -> int:
        again = self._count(AFTER_ROLLBACK)
        return self.at_savepoint + again if again else self._count(BALANCES)

    @property
    def epochs(self) -> int:
        last = self._place.job.last_committed()
        return 0 if last is None else last + 1

    def is_in(self, timeline: str) -> bool:
        return timeline != THIRD or self._count(AFTER_ROLLBACK) > 0

    def _count(self, topic: str) -> int:
        return self._counts[topic].rows if topic in self._counts else 0

    def refresh(self) -> None:
        self._look_for_topics()
        for each in self._counts.values():
            each.refresh()

    def _look_for_topics(self) -> None:
        """The topic of the rollback comes late."""
        if AFTER_ROLLBACK in self._counts or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        access = KafkaAccess(servers=self._place.environment[SERVERS_VARIABLE])
        known = KafkaAdmin(access).topics()
        for topic in (BALANCES, AFTER_ROLLBACK):
            if topic in known and topic not in self._counts:
                self._counts[topic] = _TopicCount(access, topic, known[topic])


class _TopicCount:
    def __init__(self, access: KafkaAccess, topic: str, partitions: list[int]) -> None:
        self._consumer = client().Consumer(
            {
                "bootstrap.servers": access.servers,
                "group.id": "demo",  # never joined: positions are assigned
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        beginning = client().OFFSET_BEGINNING
        self._consumer.assign(
            [client().TopicPartition(topic, number, beginning) for number in partitions]
        )
        self.rows = 0

    def refresh(self) -> None:
        while found := self._consumer.consume(_AT_ONCE, timeout=0):
            self.rows += sum(message.error() is None for message in found)
