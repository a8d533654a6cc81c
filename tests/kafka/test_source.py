"""Exact balances from Kafka: over epochs, restarts, new partitions, savepoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.control.registry import Registry
from holdfast.demo.edits import generate
from holdfast.metrics.collect import collect, exposition
from holdfast.storage.kafka import KafkaAdmin
from kafka.cluster import Cluster
from kafka.workshop import SCHEMA, Totals, Workshop
from spark.processes import RunningTotal
from spark.workplace import Memory

Topic = Callable[..., str]


AVRO = {
    "type": "record",
    "name": "Edit",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "diff", "type": ["null", "long"], "default": None},
    ],
}


def avro_bytes(user: str, diff: int) -> bytes:
    """As the specification says: zigzag numbers, lengths before texts, a union's branch."""

    def number(value: int) -> bytes:
        left, found = (value << 1) ^ (value >> 63), bytearray()
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        return bytes([*found, left])

    text = user.encode()
    return number(len(text)) + text + number(1) + number(diff)


def edits(count: int, seed: int = 1) -> list[dict[str, Any]]:
    found = generate(count, users=20, seed=seed)
    return [{"user": edit["user"], "diff": edit["diff"]} for edit in found]


def balances(records: list[dict[str, Any]]) -> dict[str, int]:
    """The truth, in plain Python."""
    totals: Counter[str] = Counter()
    for record in records:
        totals[record["user"]] += record["diff"]
    return dict(totals)


def last_rows(rows: list[Any]) -> dict[str, int]:
    return dict(rows)


def test_exact_balances_over_epochs_restarts_and_new_partitions(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name, records = topic(2), edits(900)
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA, max_per_epoch=250)
    cluster.send(name, records[:600])
    shop.run(Totals(source, sink))
    assert last_rows(written()) == balances(records[:600])
    assert len(shop.epochs()) >= 3
    assert sum(epoch.input_rows for epoch in shop.epochs()) == 600
    # More records, some of them in a partition that was not there before.
    cluster.add_partitions(name, 3)
    cluster.send(name, records[600:])
    shop.run(Totals(source, sink))
    assert last_rows(written()) == balances(records)
    assert len(written()) == len(records)
    assert sum(epoch.input_rows for epoch in shop.epochs()) == 900
    position = shop.epochs()[-1].offsets["edits"][name]
    assert sum(position.values()) == 900
    assert set(position) == {"0", "1", "2"}
    # Nothing new: nothing is read again.
    shop.run(Totals(source, sink))
    assert len(written()) == len(records)


def test_lag_and_group_as_ordinary_tools_see_them(
    cluster: Cluster,
    shop: Workshop,
    memory: Memory,
    topic: Topic,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink, written = memory("out")
    name = topic(2)
    source = hf.sources.Kafka(
        name, servers=cluster.address, schema=SCHEMA, max_per_epoch=100, group_id=f"g-{name}"
    )
    cluster.send(name, edits(1000))
    shop.copy(source, sink, max_epochs=3, checkpoint={"interval": "100 ms"})
    last = shop.epochs()[-1]
    read = sum(last.offsets["in"][name].values())
    assert read == len(written()) < 1000
    assert last.lag["in"] == 1000 - read
    assert last.latest["in"] == {name: {"0": 500, "1": 500}}
    position = {int(number): at for number, at in last.offsets["in"][name].items()}
    assert KafkaAdmin(source.access).group(f"g-{name}") == {name: position}
    # What the command line and Prometheus are told.
    with Registry(shop.registry_url) as registry:
        text = exposition(collect(registry)).decode()
    assert f'holdfast_source_lag_records{{job="job",source="in"}} {1000.0 - read}' in text
    assert main(["show", "job", "--sources", "--home", str(shop.path), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["sources"]
    assert shown["lag"] == 1000 - read
    assert shown["lags"] == {name: {str(n): 500 - at for n, at in position.items()}}
    assert main(["show", "job", "--sources", "--home", str(shop.path)]) == 0
    assert f"{name}/1" in capsys.readouterr().out
    # All the rest: no lag is left.
    shop.copy(source, sink)
    assert shop.epochs()[-1].lag["in"] == 0
    assert KafkaAdmin(source.access).group(f"g-{name}") == {name: {0: 500, 1: 500}}
    assert len(written()) == 1000


def test_start_positions(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    name = topic(2)
    cluster.send(name, [{"user": "a", "diff": n} for n in range(20)])

    def read(job: str, start: Any) -> list[int]:
        sink, written = memory(job)
        source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA, start=start)
        shop.copy(source, sink, job)
        first = sorted(diff for _, diff in written())
        cluster.send(name, [{"user": "b", "diff": 100}], partition=1)
        shop.copy(source, sink, job)
        assert sorted(diff for _, diff in written()) == sorted([*first, 100])
        return first

    assert read("all", "earliest") == list(range(20))
    assert read("new", "latest") == []  # but for what comes after the first start


def test_start_at_offsets_and_times(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    name = topic(2)
    cluster.send(name, [{"user": "a", "diff": n} for n in range(10)])
    sent = [(partition, offset) for partition, offset, _ in cluster.read(name)]
    assert len(sent) == 10
    sink, written = memory("offsets")
    # Partition 1 is not named: it starts at its beginning.
    source = hf.sources.Kafka(
        name, servers=cluster.address, schema=SCHEMA, start={name: {0: 3}}, with_metadata=True
    )
    shop.copy(source, sink, "offsets")
    places = sorted((partition, offset) for _, _, _, partition, offset, *_ in written())
    assert places == [(0, 3), (0, 4), *((1, n) for n in range(5))]
    sink, written = memory("times")
    later = datetime.now(UTC) + timedelta(hours=1)
    shop.copy(replace(source, start=later), sink, "times")
    assert written() == []
    sink, written = memory("earlier")
    shop.copy(replace(source, start=later - timedelta(hours=2)), sink, "earlier")
    assert len(written()) == 10


@pytest.mark.parametrize("fmt", ["raw", "string", "csv", "avro", "json"])
def test_formats(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic, fmt: Any
) -> None:
    name, records = topic(1), edits(50)
    rows = [(record["user"], record["diff"]) for record in records]
    schema: str | None = SCHEMA
    if fmt == "csv":
        cluster.send(name, [f'"{user}",{diff}' for user, diff in rows])
    elif fmt == "avro":
        schema = json.dumps(AVRO)
        cluster.send(name, [avro_bytes(user, diff) for user, diff in rows])
    else:
        schema = SCHEMA if fmt == "json" else None
        cluster.send(name, records)
    sink, written = memory("out")
    source = hf.sources.Kafka(
        name, servers=cluster.address, format=fmt, schema=schema, with_metadata=True
    )
    shop.copy(source, sink)
    if fmt in ("raw", "string"):
        texts = [json.dumps(record) for record in records]
        expected: list[Any] = [(text.encode() if fmt == "raw" else text,) for text in texts]
    else:
        expected = rows
    width = len(expected[0])
    found = sorted(written(), key=lambda row: row[width + 2])
    assert [tuple(row[:width]) for row in found] == expected
    assert [row[width : width + 3] for row in found] == [(name, 0, n) for n in range(50)]
    assert all(row[width + 4] is None for row in found)


def test_large_records_an_empty_topic_and_a_pattern(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    prefix = topic(1)
    for number in range(2):
        topic(2, name=f"{prefix}-{number}")
    sink, written = memory("out")
    source = hf.sources.Kafka(
        pattern=f"{prefix}-.*", servers=cluster.address, format="string", max_per_epoch=5
    )
    shop.copy(source, sink)
    assert written() == []
    large = [str(n) * 1_000_000 for n in range(6)]
    cluster.send(f"{prefix}-0", large[:4])
    cluster.send(f"{prefix}-1", large[4:])
    shop.copy(source, sink)
    assert Counter(value for (value,) in written()) == Counter(large)


def test_savepoint_and_restore(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name, records = topic(2), edits(300)
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA)
    cluster.send(name, records[:200])
    shop.run(Totals(source, sink))
    savepoint = shop.take()
    cluster.send(name, records[200:])
    shop.run(Totals(source, sink))
    assert dict(written()) == balances(records)
    # A copy of the job goes on from the savepoint: it reads the last hundred again, once.
    other, written_there = memory("other")
    shop.restore(Totals(source, other), str(savepoint.path), "new")
    assert len(written_there()) == 100
    assert dict(written()) | dict(written_there()) == balances(records)


def test_a_second_topic_begins_where_it_is_told_and_the_first_goes_on(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    first, second = topic(2), topic(1)
    records = edits(60)
    cluster.send(first, records[:20])
    cluster.send(second, records[20:40])

    def kafka(name: str, **options: Any) -> hf.sources.Kafka:
        return hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA, **options)

    def one(flow: hf.Flow) -> None:
        edits = flow.source("first", kafka(first))
        flow.sink("out", flow.key_by(edits, "user").process("totals", RunningTotal()), sink)

    def two(flow: hf.Flow) -> None:
        edits = flow.source("first", kafka(first)).union(
            flow.source("second", kafka(second, start={second: {0: 15}}))
        )
        flow.sink("out", flow.key_by(edits, "user").process("totals", RunningTotal()), sink)

    shop.run(one)
    savepoint = shop.take()
    shop.restore(two, savepoint.manifest.id)
    expected = records[:20] + records[35:40]
    assert len(written()) == len(expected)
    cluster.send(first, records[40:50])
    cluster.send(second, records[50:])
    shop.run(two)
    expected += records[40:]
    assert len(written()) == len(expected)
    assert dict(written()) == balances(expected)
