"""What a consumer sees of a Kafka sink: every row once, in order per key."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import Consumer

import holdfast as hf
from holdfast.checkpoint.kafka_epochs import (
    MARKER_PARTITIONS,
    Markers,
    PartitionWrite,
    SinkIdentity,
    write_partition,
)
from holdfast.checkpoint.lease import LeaseFile
from holdfast.errors import (
    ConflictError,
    HoldfastError,
    JobDefinitionError,
    NotFoundError,
    RunFailedError,
)
from holdfast.sinks.kafka_records import Record
from kafka.cluster import Cluster
from spark.processes import RunningTotal
from spark.test_resume import SCHEMA, feed
from spark.workplace import Workplace, running_totals

USERS = ["ann", "bob", "zoë", "", 'q"uote', "new\nline"]
EDITS = [(USERS[n % 6], n % 7 - 3) for n in range(180)]
SIZE = 60
Topic = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path, "heap")


def totals(place: Workplace, sink: hf.sinks.Kafka) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        log = hf.sources.FileLog(place.path / "log", SCHEMA, max_segments_per_epoch=1)
        sums = flow.key_by(flow.source("edits", log), "user").process("sum", RunningTotal())
        flow.sink("out", sums, sink)

    return pipeline


def feed_part(place: Workplace, part: int) -> None:
    feed(place.path / "log", EDITS[part * SIZE : (part + 1) * SIZE], f"p{part:02d}")


def rows_by_key(cluster: Cluster, topic: str) -> dict[str, list[tuple[int, int]]]:
    """By user, where its totals are, in the order in which a consumer of the partition gets
    them."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition, _, value in sorted(cluster.read(topic), key=lambda row: row[:2]):
        assert value is not None
        row = json.loads(value)
        found[row["user"]].append((partition, row["total"]))
    return found


def assert_exact(cluster: Cluster, topic: str, edits: list[tuple[str, int]]) -> None:
    truth: dict[str, list[int]] = defaultdict(list)
    for user, total in running_totals(edits):
        truth[user].append(total)
    found = rows_by_key(cluster, topic)
    assert {user: [total for _, total in rows] for user, rows in found.items()} == truth
    assert all(len({partition for partition, _ in rows}) == 1 for rows in found.values())


def test_every_row_is_there_once_and_in_order_per_key(
    cluster: Cluster, topic: Topic, place: Workplace
) -> None:
    out = topic(3)
    sink = hf.sinks.Kafka(out, servers=cluster.address, key="user")
    for part in range(3):
        feed_part(place, part)
        place.run(totals(place, sink), out)
        assert_exact(cluster, out, EDITS[: (part + 1) * SIZE])
    assert [epoch.sinks["out"].rows for epoch in place.epochs(out)] == [SIZE] * 3
    # From a savepoint with other partitions: the rows before it are known to be there.
    savepoint = place.take(out)
    feed(place.path / "log", [("ann", 5), ("new", 1)], "p09")
    place.restore(totals(place, sink), savepoint.manifest.id, name=out, parallelism=3)
    assert_exact(cluster, out, [*EDITS, ("ann", 5), ("new", 1)])


def test_a_topic_cannot_be_taken_back(cluster: Cluster, topic: Topic, place: Workplace) -> None:
    out = topic(2)
    sink = hf.sinks.Kafka(out, servers=cluster.address, key="user")
    for part in range(2):
        feed_part(place, part)
        place.run(totals(place, sink), out)
    with pytest.raises(ConflictError, match=r"'out' holds 1 epoch") as undecided:
        place.restore(totals(place, sink), "checkpoint:0", name=out)
    assert undecided.value.name == "SINK_CHOICE_NEEDED"
    with pytest.raises(ConflictError, match=r"'out'.*a topic only grows") as refused:
        place.restore(totals(place, sink), "checkpoint:0", "rewind", out)
    assert refused.value.name == "SINK_CANNOT_REWIND"
    assert_exact(cluster, out, EDITS[: 2 * SIZE])
    place.restore(totals(place, sink), "checkpoint:0", "new", out)
    again = [each[2] for each in cluster.read(f"{out}.t1")]
    assert len(again) == SIZE, "what came after the epoch, in a topic of its own"
    assert_exact(cluster, out, EDITS[: 2 * SIZE])


def test_what_cannot_work_is_refused_before_anything_is_written(
    cluster: Cluster, topic: Topic, place: Workplace
) -> None:
    feed_part(place, 0)
    with pytest.raises(NotFoundError, match="TOPIC_NOT_FOUND"):
        place.run(totals(place, hf.sinks.Kafka("nowhere", servers=cluster.address)))
    out = topic(1)
    wrong = hf.sinks.Kafka(out, servers=cluster.address, key="name")
    with pytest.raises(JobDefinitionError, match="'name'; its rows have user, total"):
        place.run(totals(place, wrong), out)
    weak = hf.sinks.Kafka(out, servers=cluster.address, guarantee="at_least_once")
    with pytest.raises(JobDefinitionError, match=r"sink 'out'.*cannot tell a repeated") as told:
        place.run(totals(place, weak), out)
    assert told.value.name == "EXACTLY_ONCE_NOT_POSSIBLE"
    assert cluster.read(out) == []
    sink = hf.sinks.Kafka(out, servers=cluster.address, key="user")
    place.run(totals(place, sink), out)
    # The same names, but another job: whose epochs these are cannot be told.
    other = Workplace(place.path / "other", "heap")
    feed_part(other, 0)
    with pytest.raises(ConflictError, match="SINK_OWNED_BY_ANOTHER_JOB"):
        other.run(totals(other, sink), out)
    assert_exact(cluster, out, EDITS[:SIZE])


def test_records_have_headers_and_their_own_partition(
    cluster: Cluster, topic: Topic, place: Workplace
) -> None:
    out = topic(3)
    sink = hf.sinks.Kafka(
        out,
        servers=cluster.address,
        key="id",
        value="text",
        headers={"kind": "kind", "size": "id"},
        partition="place",
    )
    rows = [(n, f"text {n}", None if n == 4 else f"k{n}", n % 3) for n in range(9)]

    def pipeline(flow: hf.Flow) -> None:
        schema = "id bigint, text string, kind string, place int"
        flow.sink("out", flow.source("in", hf.sources.Collection(rows, schema)), sink)

    place.run(pipeline, name="headers")
    found = sorted(
        (message.key(), message.value(), tuple(message.headers()), message.partition())
        for message in first_messages(cluster, out, len(rows))
    )
    assert found == [
        (
            str(n).encode(),
            text.encode(),
            (("kind", kind.encode() if kind else None), ("size", str(n).encode())),
            part,
        )
        for n, text, kind, part in rows
    ]


def test_the_partitioner_can_be_another(
    cluster: Cluster, topic: Topic, place: Workplace
) -> None:
    out = topic(3)
    feed_part(place, 0)
    sink = hf.sinks.Kafka(
        out, servers=cluster.address, key="user", options={"partitioner": "consistent"}
    )
    place.run(totals(place, sink), out)
    assert_exact(cluster, out, EDITS[:SIZE])
    found = {user: rows[0][0] for user, rows in rows_by_key(cluster, out).items()}
    assert found == {user: crc32(user.encode()) % 3 for user in USERS}


def first_messages(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """With their keys and headers."""
    settings = {"bootstrap.servers": cluster.address, "group.id": topic}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        assert message.error() is None
        found.append(message)
    consumer.close()
    return found


# -- the protocol, without Spark --------------------------------------------------------------


class Sink:
    """One sink's partitions, written by hand."""

    def __init__(self, cluster: Cluster, topic: str, lease: Path) -> None:
        self.cluster, self.topic, self.lease = cluster, topic, lease
        self.settings = {"bootstrap.servers": cluster.address}
        name = topic.replace("-", "")
        self.identity = SinkIdentity(
            job_id="id",
            job_name=name,
            uid="out",
            timeline="t0",
            fence=1,
            lease_directory=str(lease),
        )
        cluster.new_topic(MARKER_PARTITIONS, self.identity.marker_topic)

    def write(self, epoch: int, records: Iterator[Record], *, partitions: int = 1) -> Any:
        write = PartitionWrite(
            settings=self.settings,
            options={},
            identity=self.identity,
            topic=self.topic,
            epoch=epoch,
            partitions=partitions,
        )
        return write_partition(write, 0, records)

    def values(self) -> list[bytes | None]:
        return [value for _, _, value in self.cluster.read(self.topic)]


def some(*values: bytes) -> Iterator[Record]:
    for value in values:
        yield b"k", value, None, -1


@pytest.fixture
def sink(cluster: Cluster, topic: Topic, tmp_path: Path) -> Sink:
    return Sink(cluster, topic(1), tmp_path)


def test_an_epoch_that_comes_again_is_computed_and_not_written(sink: Sink) -> None:
    assert sink.write(0, some(b"a", b"b")).rows == 2
    again = some(b"a", b"b")
    assert sink.write(0, again).skipped
    assert next(again, None) is None, "its state depends on it"
    assert not sink.write(1, some(b"c")).skipped
    assert sink.values() == [b"a", b"b", b"c"]
    # After more epochs than the tail of the markers has, in another timeline too.
    for epoch in range(2, 40):
        sink.write(epoch, some())
    assert sink.write(1, some(b"c")).skipped
    assert Markers(sink.settings, sink.identity.marker_topic).newest("t1", 0) is None


def test_a_part_that_fails_is_not_visible_and_can_be_repeated(sink: Sink) -> None:
    def failing() -> Iterator[Record]:
        yield from some(b"lost")
        raise NotFoundError("GONE", "gone.", fix="none.")

    with pytest.raises(NotFoundError):
        sink.write(0, failing())
    sink.write(0, some(b"a"))
    assert sink.values() == [b"a"]


def test_another_cut_of_an_epoch_is_refused(sink: Sink) -> None:
    sink.write(0, some(b"a"), partitions=2)
    with pytest.raises(ConflictError, match="cut into 2 partitions; now it comes in 3"):
        sink.write(0, some(b"a"), partitions=3)


def test_a_driver_that_was_replaced_writes_nothing(sink: Sink) -> None:
    def replaced_meanwhile() -> Iterator[Record]:
        """Its producer is open; the next attempt comes, and writes the epoch."""
        yield from some(b"zombie")
        lease = LeaseFile(sink.lease, "job")
        lease.next_attempt(lease.next_attempt(lease.acquire()))
        successor = Sink.__new__(Sink)
        vars(successor).update(vars(sink))
        successor.identity = SinkIdentity(**{**vars(sink.identity), "fence": 3})
        successor.write(0, some(b"a"))
        yield from some(b"zombie")

    with pytest.raises(RunFailedError, match="PRODUCER_FENCED"):
        sink.write(0, replaced_meanwhile())
    # It comes with a new producer: the lease says that it is not to.
    with pytest.raises(ConflictError, match="FENCED"):
        sink.write(0, some(b"zombie"))
    assert sink.values() == [b"a"]


def test_a_record_that_is_too_large_is_named(sink: Sink) -> None:
    with pytest.raises(HoldfastError, match="RECORD_TOO_LARGE"):
        sink.write(0, some(b"x" * 2_000_000))
    assert sink.values() == []
