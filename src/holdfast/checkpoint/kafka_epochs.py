"""A Kafka sink's epochs: written in transactions, and known by markers in a topic of their own.

Each partition of an epoch's rows is one transaction of the producer `holdfast-JOB-SINK-P`. Its
last record is a *marker*, in the topic `holdfast.JOB.SINK`: timeline, partition and epoch. So a
partition of an epoch is in the topic if and only if its marker is, and a partition that comes a
second time is told by its marker and not written again.

Whoever opens the producer of a partition ends what an earlier owner has left open: the broker
aborts it, or completes it if it was decided. Then, in this order,

1. the lease is looked at: an attempt that was replaced stops here;
2. the marker is read, which is now final;
3. the rows are written, the marker, and the transaction is committed.

An attempt that slept through its replacement either sees the newer lease in step 1, or its
producer was opened before that lease was taken. Then the newer attempt opens the same producer
later, and the broker refuses whatever the older one still sends; what it had committed before,
the newer one finds in step 2.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from holdfast.checkpoint.lease import LeaseFile
from holdfast.checkpoint.timelines import Timeline
from holdfast.errors import ConflictError, CorruptionError, HoldfastError, RunFailedError
from holdfast.faults import fault_point
from holdfast.sinks import Kafka, Sink
from holdfast.sinks.kafka_records import Record
from holdfast.storage.files import make_directory, read_json, write_json
from holdfast.storage.kafka import SETTLING, KafkaAdmin, NewTopic, client
from holdfast.storage.references import resolve

MARKER_PARTITIONS = 16
"""Markers of one partition of rows always lie in the same of these, so that whoever reads one
does not have to wait for the transactions of others."""
_OPEN_SECONDS = 60.0
_CONNECT_SECONDS = 0.03
_COMMIT_SECONDS = 60.0
_READ_SECONDS = 90.0
_TAIL = 64
"""How many of the newest offsets are read first: the marker is nearly always there."""
_POLL_SECONDS = 0.05
_AT_ONCE = 8


def marker_topic(job: str, uid: str) -> str:
    return f"holdfast.{job}.{uid}"


@dataclass(frozen=True, kw_only=True)
class SinkIdentity:
    """Whose epochs they are."""

    job_id: str
    job_name: str
    uid: str
    timeline: str
    fence: int
    lease_directory: str

    @property
    def marker_topic(self) -> str:
        return marker_topic(self.job_name, self.uid)

    def producer(self, partition: int) -> str:
        return f"holdfast-{self.job_id}-{self.uid}-{partition}"


class ProducerCount:
    """How many producers a sink has ever had: what each may have left open has to be ended."""

    def __init__(self, identity: SinkIdentity, at_least: int) -> None:
        self._path = Path(identity.lease_directory) / "sinks" / f"{identity.uid}.json"
        self._count = at_least
        if self._path.exists():
            self._count = max(at_least, int(read_json(self._path)["producers"]))

    def most(self) -> int:
        return self._count

    def note(self, count: int) -> None:
        """Before so many are used."""
        if count > self._count:
            make_directory(self._path.parent)
            write_json(self._path, {"format": 1, "producers": count})
            self._count = count


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The newest epoch that a partition of a timeline has committed."""

    job_id: str
    timeline: str
    partition: int
    epoch: int
    partitions: int
    """Into how many the rows of the epoch were cut."""
    rows: int

    @property
    def key(self) -> bytes:
        return marker_key(self.timeline, self.partition)

    @property
    def value(self) -> bytes:
        return json.dumps({"format": 1, **vars(self)}).encode()

    @classmethod
    def parse(cls, value: bytes) -> Marker:
        try:
            fields = json.loads(value)
            if fields.pop("format") != 1:
                raise ValueError("another format")  # noqa: TRY301
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                "MARKER_UNREADABLE",
                f"a marker of a Kafka sink cannot be read: {error}.",
                fix="has something else been written into the topic holdfast.JOB.SINK? It "
                "belongs to the sink alone.",
            ) from error


def marker_key(timeline: str, partition: int) -> bytes:
    return f"{timeline}/{partition}".encode()


class Markers:
    """The topic of a sink's markers."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        """`settings` are those of a client, secrets included."""
        self._settings, self._topic, self._kafka = settings, topic, client()

    def all(self) -> dict[tuple[str, int], Marker]:
        """The newest marker of each timeline and partition; of all transactions that were
        decided when it was called."""
        found = self._read(dict.fromkeys(range(MARKER_PARTITIONS)))
        return {(marker.timeline, marker.partition): marker for marker in found}

    def newest(self, timeline: str, partition: int) -> Marker | None:
        """Of one partition, whose transactions are all decided."""
        for last in (_TAIL, None):
            found = [
                marker
                for marker in self._read({partition % MARKER_PARTITIONS: last})
                if (marker.timeline, marker.partition) == (timeline, partition)
            ]
            if found:
                return found[-1]
        return None

    def _read(self, wanted: Mapping[int, int | None]) -> list[Marker]:
        """The markers in partitions of the topic, or in so many offsets before their ends, once
        no transaction is open there."""
        with kafka_errors(self._kafka, self._topic):
            places, ends = [], {}
            for number, (low, end) in self._ends(wanted).items():
                last = wanted[number]
                if low < end:
                    start = low if last is None else max(low, end - last)
                    places.append(self._kafka.TopicPartition(self._topic, number, start))
                    ends[number] = end
            if not places:
                return []
            with closing(self._consumer("read_committed")) as consumer:
                consumer.assign(places)
                return self._read_until(consumer, ends)

    def _read_until(self, consumer: Any, ends: dict[int, int]) -> list[Marker]:
        found, deadline = [], time.monotonic() + _READ_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                if message.value() is not None:
                    found.append(Marker.parse(message.value()))
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                # Where the first open transaction begins, if one is open.
                if message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
                if not ends:
                    return found
            else:
                raise self._kafka.KafkaException(error)
        raise RunFailedError(
            "TRANSACTION_STILL_OPEN",
            f"topic {self._topic!r}: a transaction has been open for more than "
            f"{_READ_SECONDS:g} s.",
            fix="the broker ends it when its timeout has passed; a restart strategy tries "
            "again by itself.",
        )

    def _consumer(self, isolation: str) -> Any:
        return self._kafka.Consumer(
            {
                **self._settings,
                "group.id": "holdfast",  # never joined: positions are assigned
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )

    def _ends(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The first offset and the end of partitions, whatever is committed or not.

        Asked by a consumer: an AdminClient that is new answers after seconds now and then.
        """
        with closing(self._consumer("read_uncommitted")) as consumer:
            return {number: self._bounds(consumer, number) for number in numbers}

    def _bounds(self, consumer: Any, number: int) -> tuple[int, int]:
        place = self._kafka.TopicPartition(self._topic, number)
        deadline = time.monotonic() + _OPEN_SECONDS
        while True:
            try:
                low, end = consumer.get_watermark_offsets(place, _OPEN_SECONDS, cached=False)
            except self._kafka.KafkaException as error:
                # The topic was just made, or its leader has just changed.
                if error.args[0].name() not in SETTLING or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return low, end


def ensure_topics(admin: KafkaAdmin, topic: str, like: str | None, markers: str) -> None:
    """The topic of the markers is made if it is not there; that of the rows only if it stands
    in for another one."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    wanted = [NewTopic(name=markers, partitions=MARKER_PARTITIONS, config=config)]
    if like is not None:
        model = admin.topics().get(like)
        if model is not None:
            wanted.append(NewTopic(name=topic, partitions=len(model)))
    admin.create(wanted)


def end_open_transactions(
    settings: Mapping[str, str], identity: SinkIdentity, partitions: int
) -> None:
    """What an earlier attempt has left open is aborted, or completed if it was decided."""

    def opened(partition: int) -> None:
        open_producer(settings, identity, partition, {})

    with kafka_errors(client(), identity.marker_topic), ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(opened, range(partitions)):
            pass


def open_producer(
    settings: Mapping[str, str],
    identity: SinkIdentity,
    partition: int,
    options: Mapping[str, Any],
) -> Any:
    """The producer of a partition, with nothing open; nobody else's works from then on."""
    producer = client().Producer(
        {
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "compression.type": "lz4",
            # As Java's clients choose, so that a key is always in the same partition.
            "partitioner": "murmur2_random",
            "log_level": 0,
            **settings,
            **options,
            "transactional.id": identity.producer(partition),
            "delivery.report.only.error": True,
        }
    )
    # Asked before it is connected, librdkafka tries again only after half a second.
    producer.poll(_CONNECT_SECONDS)
    producer.init_transactions(_OPEN_SECONDS)
    return producer


@dataclass(frozen=True, kw_only=True)
class PartitionWrite:
    """What a worker has to know to write one partition of an epoch."""

    settings: Mapping[str, str]
    options: Mapping[str, Any]
    identity: SinkIdentity
    topic: str
    epoch: int
    partitions: int


@dataclass(frozen=True, kw_only=True)
class Written:
    rows: int
    bytes: int
    skipped: bool


def write_partition(
    write: PartitionWrite, partition: int, records: Iterable[Record]
) -> Written:
    """Write a partition of an epoch, unless it is there. All records are computed, always."""
    with (
        kafka_errors(client(), write.identity.marker_topic),
        ThreadPoolExecutor(1, "open-producer") as pool,
    ):
        # Records come when the steps before have computed them. Opening takes as long as they
        # do in a small epoch, and so it is done meanwhile.
        opening = pool.submit(_opened, write, partition)
        coming = _begun(records)
        producer, known = opening.result()
        if known is not None and known.epoch >= write.epoch:
            require_same_cut(known, write)
            for _ in coming:
                pass
            return Written(rows=known.rows, bytes=0, skipped=True)
        return _transaction(producer, write, partition, coming)


def _begun(records: Iterable[Record]) -> Iterator[Record]:
    """Returns when the first record is there."""
    coming = iter(records)
    return chain(list(islice(coming, 1)), coming)


def _opened(write: PartitionWrite, partition: int) -> tuple[Any, Marker | None]:
    """The producer of a partition, and the marker of its last epoch."""
    identity = write.identity
    producer = open_producer(write.settings, identity, partition, write.options)
    lease = LeaseFile(Path(identity.lease_directory), identity.job_name)
    lease.require_not_past(identity.fence)
    markers = Markers(write.settings, identity.marker_topic)
    known = markers.newest(identity.timeline, partition)
    producer.list_topics(write.topic, _OPEN_SECONDS)  # or the first record would wait for it
    return producer, known


def require_same_cut(known: Marker, write: PartitionWrite) -> None:
    if known.epoch == write.epoch and known.partitions != write.partitions:
        raise ConflictError(
            "EPOCH_CUT_DIFFERENTLY",
            f"sink {write.identity.uid!r}: a part of epoch {write.epoch} is in the topic, cut "
            f"into {known.partitions} partitions; now it comes in {write.partitions}, and it "
            "cannot be told which rows are there already.",
            fix="start with as many cores and the same settings as before, until this epoch is "
            "committed.",
        )


def _transaction(
    producer: Any, write: PartitionWrite, partition: int, records: Iterable[Record]
) -> Written:
    producer.begin_transaction()
    try:
        rows, size = _send(producer, write.topic, records)
        fault_point("kafka.before_marker")
        marker = Marker(
            job_id=write.identity.job_id,
            timeline=write.identity.timeline,
            partition=partition,
            epoch=write.epoch,
            partitions=write.partitions,
            rows=rows,
        )
        producer.produce(
            write.identity.marker_topic,
            marker.value,
            marker.key,
            partition=partition % MARKER_PARTITIONS,
        )
        producer.flush()
        fault_point("kafka.before_commit")
        _commit(producer)
    except HoldfastError:
        _abort(producer)
        raise
    except client().KafkaException as error:
        if error.args[0].txn_requires_abort():
            _abort(producer)
        raise
    fault_point("kafka.after_commit")
    return Written(rows=rows, bytes=size, skipped=False)


def _send(producer: Any, topic: str, records: Iterable[Record]) -> tuple[int, int]:
    rows = size = 0
    produce: Callable[..., None] = producer.produce
    for key, value, headers, partition in records:
        while True:
            try:
                if headers is None:
                    produce(topic, value, key, partition)
                else:
                    produce(topic, value, key, partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)  # until there is room
        rows += 1
        size += len(value or b"") + len(key or b"")
    return rows, size


def _commit(producer: Any) -> None:
    """As often as the broker says that it may be asked again; whether it was decided is then
    known, or the next attempt finds out."""
    kafka, deadline = client(), time.monotonic() + _COMMIT_SECONDS
    while True:
        try:
            producer.commit_transaction(_COMMIT_SECONDS)
        except kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _abort(producer: Any) -> None:
    with suppress(client().KafkaException):  # the next owner of the producer does it
        producer.abort_transaction(_OPEN_SECONDS)


def epochs_beyond(
    sink: Kafka,
    job: str,
    uid: str,
    timelines: Sequence[Timeline],
    kept: Mapping[str, int | None],
) -> int:
    """How many epochs the topic holds that do not lead to a timeline; `kept` are those that
    do."""
    settings, topic = sink.access.client_settings(resolve), marker_topic(job, uid)
    if topic not in KafkaAdmin(sink.access).topics():
        return 0
    newest: dict[str, int] = {}
    for (timeline, _), marker in Markers(settings, topic).all().items():
        newest[timeline] = max(marker.epoch, newest.get(timeline, -1))
    begins: dict[str, int] = defaultdict(lambda: -1)
    begins |= {each.name: each.epoch for each in timelines if each.epoch is not None}
    beyond = 0
    for timeline, last in newest.items():
        first = kept[timeline] if timeline in kept else begins[timeline]
        beyond += 0 if first is None else max(0, last - first)
    return beyond


def cannot_rewind(uid: str, sink: Sink) -> ConflictError:
    return ConflictError(
        "SINK_CANNOT_REWIND",
        f"sink {uid!r} ({sink.describe()}) cannot take back what it has written: a topic only "
        "grows.",
        fix="--sink keep leaves it there (rows that come again are there twice), --sink new "
        "writes to another topic.",
        sink=uid,
    )


@contextmanager
def kafka_errors(kafka: Any, topic: str) -> Iterator[None]:
    """What Kafka refuses, by name."""
    try:
        yield
    except kafka.KafkaException as error:
        raise _named(kafka, topic, error.args[0]) from error


def _named(kafka: Any, topic: str, error: Any) -> HoldfastError:
    codes = kafka.KafkaError
    if error.code() in (codes._FENCED, codes.INVALID_PRODUCER_EPOCH, codes.PRODUCER_FENCED):
        # The driver knows whether it was replaced; if not, it was a driver that had been.
        return RunFailedError(
            "PRODUCER_FENCED",
            f"topic {topic!r}: somebody else has opened the producer of this partition.",
            fix="nothing: the attempt that the job belongs to goes on. No row is lost or "
            "doubled.",
        )
    if error.code() in (
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
    ):
        return ConflictError(
            "KAFKA_ACCESS_DENIED",
            f"topic {topic!r}: {error.str()}.",
            fix="grant Write on the topic, Create, Read and Write on topics holdfast.*, and "
            "Write on transactional ids holdfast-*.",
        )
    if error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE):
        return RunFailedError(
            "RECORD_TOO_LARGE",
            f"topic {topic!r}: a record is larger than the broker or the producer takes: "
            f"{error.str()}.",
            fix='raise max.message.bytes of the topic and options={"message.max.bytes": "…"}.',
        )
    return RunFailedError(
        "KAFKA_WRITE_FAILED",
        f"topic {topic!r}: {error.str()} ({error.name()}).",
        fix="is the broker there? A restart strategy tries again by itself; nothing that was "
        "half written is visible to a consumer with isolation.level=read_committed.",
    )
