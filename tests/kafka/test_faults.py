"""What can be wrong: records, topics, brokers, passwords, and data that is gone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.control.registry import Registry
from holdfast.errors import (
    BadRecordError,
    DataError,
    HoldfastError,
    NotFoundError,
    SettingsError,
)
from holdfast.failure import FailureClass, classify
from holdfast.kafka_access import KafkaAccess
from holdfast.sources.kafka import KafkaFormat
from holdfast.storage.kafka_topic import read_topic
from kafka.cluster import PASSWORD, USER, Cluster, SecuredCluster, delete_records
from kafka.workshop import SCHEMA, Totals, Workshop
from spark.processes import RunningTotal
from spark.workplace import Memory

Topic = Callable[..., str]

BAD_JSON: dict[str | None, str] = {
    "not json at all": "not JSON",
    '{"user": "a", "diff": "many"}': "column 'diff': 'many' is not a bigint",
    '{"user": "a", "diff": 1.5}': "column 'diff': 1.5 is not a bigint",
    "[1, 2]": "a JSON list, not an object",
    '[{"user": "a", "diff": 1}]': "a JSON list, not an object",
    '{"user": "half': "not JSON",
    "null": "a JSON NoneType, not an object",
    "": "the record is empty",
    None: "the record has no value",
}
GOOD = [("a", 1), ("b", 2), ("a", 3)]


def values(rows: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"user": user, "diff": diff} for user, diff in rows]


def test_a_bad_record_fails_by_default(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name = topic(2)
    cluster.send(name, values(GOOD), partition=1)
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA)
    shop.copy(source, sink)
    assert Counter(written()) == Counter(GOOD)
    cluster.send(name, ['{"user": "a", "diff": "many"}'], partition=1)
    with pytest.raises(BadRecordError, match="BAD_RECORD") as caught:
        shop.copy(source, sink)
    facts = caught.value.facts
    assert (facts["topic"], facts["partition"], facts["offset"]) == (name, 1, 3)
    assert facts["reason"] == "column 'diff': 'many' is not a bigint"
    assert Counter(written()) == Counter(GOOD)
    # Once it is said that it may pass, the job goes on.
    cluster.send(name, values([("z", 9)]), partition=1)
    shop.copy(replace(source, on_bad_record="skip"), sink)
    assert Counter(written()) == Counter([*GOOD, ("z", 9)])


@pytest.mark.parametrize("bad", ['{"user": "a", "diff": 1.5}', '{"user": "half', None])
def test_a_step_that_decodes_names_the_bad_record_too(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic, bad: str | None
) -> None:
    """Straight from the source into a process: decoded where they are packed."""
    sink, written = memory("out")
    name = topic(1)
    # Unusual, and right: a number for a text, and a line end between tokens.
    cluster.send(name, [*values(GOOD), '{"user": 7,\n "diff": 4}', bad])
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA, max_per_epoch=4)
    with pytest.raises(BadRecordError, match="BAD_RECORD") as caught:
        shop.run(Totals(source, sink))
    facts = caught.value.facts
    assert (facts["topic"], facts["partition"], facts["offset"]) == (name, 0, 4)
    assert facts["reason"].startswith(BAD_JSON[bad])
    assert Counter(written()) == Counter([("a", 1), ("b", 2), ("a", 4), ("7", 4)])


def test_bad_records_are_skipped_or_go_aside(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    name = topic(1)
    cluster.send(name, [*values(GOOD), *BAD_JSON, *values(GOOD)])
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA)
    sink, written = memory("skip")
    shop.copy(replace(source, on_bad_record="skip"), sink, "skip")
    assert Counter(written()) == Counter(GOOD * 2)
    assert sum(epoch.skipped_rows for epoch in shop.epochs("skip")) == len(BAD_JSON)

    out, written = memory("out")
    side, written_bad = memory("bad")

    def pipeline(flow: hf.Flow) -> None:
        frame = flow.source("in", replace(source, on_bad_record="side"))
        flow.sink("out", frame.select("user"), out)  # a column that no bad record spoils
        flow.sink("bad", frame.side("bad"), side)

    shop.run(pipeline, "side")
    assert Counter(user for (user,) in written()) == Counter(user for user, _ in GOOD * 2)
    found = {raw: (reason, place) for raw, reason, *place in written_bad()}
    assert set(found) == set(BAD_JSON)
    for at, (raw, reason) in enumerate(BAD_JSON.items(), len(GOOD)):
        assert found[raw][0].startswith(reason)
        assert found[raw][1][:3] == [name, 0, at]


def test_bad_records_go_to_a_topic_of_their_own_and_come_again_when_corrected(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    name, dead = topic(1), topic(1)
    sink, written = memory("out")
    poison = '{"user": "c", "diff": "many"}'
    cluster.send(name, [*values(GOOD), poison, *values(GOOD)])

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Kafka(
            name, servers=cluster.address, schema=SCHEMA, on_bad_record="side"
        )
        edits = flow.source("edits", source)
        letters = hf.sinks.Kafka(
            dead,
            servers=cluster.address,
            value="raw",
            headers={"reason": "reason", "topic": "topic", "offset": "offset"},
        )
        flow.sink("dead", edits.side("bad"), letters)
        flow.sink("out", flow.key_by(edits, "user").process("totals", RunningTotal()), sink)

    shop.run(pipeline)
    assert dict(written()) == {"a": 8, "b": 4}
    (letter,) = read_topic(KafkaAccess(servers=cluster.address), dead)
    assert letter.value == poison.encode()
    # Corrected, and sent again.
    cluster.send(name, [letter.value.replace(b'"many"', b"7")])
    shop.run(pipeline)
    assert dict(written()) == {"a": 8, "b": 4, "c": 7}
    assert len(list(read_topic(KafkaAccess(servers=cluster.address), dead))) == 1


@pytest.mark.parametrize("fmt", ["csv", "avro"])
def test_bad_records_of_other_formats(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic, fmt: KafkaFormat
) -> None:
    name = topic(1)
    schema = SCHEMA
    good: list[Any] = ["a,1"]
    bad: list[Any] = ["a,many", "a", "a,1,2", "", None]
    if fmt == "avro":
        fields = [{"name": "user", "type": ["null", "string"]}]
        schema = json.dumps({"type": "record", "name": "Edit", "fields": fields})
        good, bad = [b"\x02\x02a", b"\x00"], [b"\x02\x0aa", b"\x08", b"", None]
    cluster.send(name, [*good, *bad, *good])
    source = hf.sources.Kafka(
        name, servers=cluster.address, format=fmt, schema=schema, on_bad_record="skip"
    )
    sink, written = memory("out")
    shop.copy(source, sink)
    expected = [("a", 1)] * 2 if fmt == "csv" else [("a",), (None,)] * 2
    assert Counter(map(tuple, written())) == Counter(expected)
    assert sum(epoch.skipped_rows for epoch in shop.epochs()) == len(bad)
    with pytest.raises(BadRecordError) as caught:
        shop.copy(replace(source, on_bad_record="fail"), sink, "strict")
    assert caught.value.facts["offset"] == len(good)


def test_expired_records_are_refused_or_counted(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name = topic(2)
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA)
    cluster.send(name, values([("a", n) for n in range(20)]))
    shop.copy(source, sink)
    cluster.send(name, values([("b", n) for n in range(20)]))
    cluster.delete_records(name, {1: 14})
    with pytest.raises(DataError, match="DATA_LOST") as caught:
        shop.copy(source, sink)
    assert f"topic {name}, partition 1, offsets 10 to 13" in caught.value.message
    assert len(written()) == 20
    shop.copy(replace(source, on_data_loss="continue"), sink)
    assert len(written()) == 20 + 16
    with Registry(shop.registry_url) as registry:
        (event,) = [
            each for each in registry.events(registry.job("job").id) if each.kind == "data_lost"
        ]
    assert event.data["records"] == 4


def test_records_that_expire_while_the_job_runs_are_counted(
    cluster: Cluster, shop: Workshop, topic: Topic
) -> None:
    """The first epoch is at work while Kafka deletes what the second would read."""
    name = topic(1)
    source = hf.sources.Kafka(
        name, servers=cluster.address, schema=SCHEMA, max_per_epoch=10, on_data_loss="continue"
    )
    cluster.send(name, values([("a", n) for n in range(30)]))
    address = cluster.address  # a worker cannot have the cluster itself

    def pipeline(flow: hf.Flow) -> None:
        def expire(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if batch.column("diff").to_pylist()[0] == 0:
                    delete_records(address, name, {0: 17})
                yield batch

        rows = flow.source("in", source).mapInArrow(expire, SCHEMA)
        flow.sink("out", rows, hf.sinks.Files(shop.path / "out"))

    shop.run(pipeline, max_epochs=2)
    with Registry(shop.registry_url) as registry:
        events = [
            each for each in registry.events(registry.job("job").id) if each.kind == "data_lost"
        ]
    assert [event.data["records"] for event in events] == [7]


def test_a_topic_that_was_made_anew(
    cluster: Cluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name = topic(1)
    job = Totals(hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA), sink)
    cluster.send(name, values(GOOD))
    shop.run(job)
    cluster.delete_topic(name)
    with pytest.raises(NotFoundError, match="TOPIC_NOT_FOUND"):
        shop.run(job)
    cluster.new_topic(1, name)
    with pytest.raises(DataError, match="DATA_LOST") as caught:
        shop.run(job)
    assert "made anew" in caught.value.message
    assert "--reset-source edits" in caught.value.fix
    assert len(written()) == len(GOOD)
    # Told to, it reads the new topic from its beginning, and keeps what it knows.
    cluster.send(name, values(GOOD[:1]))
    plan = shop.restore(job, "checkpoint:0", "keep", reset_sources=("edits",))
    assert "begins anew in source edits" in plan.sentence
    assert len(written()) == len(GOOD) + 1
    (user, diff), total = GOOD[0], written()[-1]
    assert total == (user, sum(each for who, each in GOOD if who == user) + diff)


def test_an_unknown_topic(cluster: Cluster, shop: Workshop, memory: Memory) -> None:
    sink, _ = memory("out")
    source = hf.sources.Kafka("no-such-topic", servers=cluster.address, schema=SCHEMA)
    with pytest.raises(NotFoundError, match="TOPIC_NOT_FOUND"):
        shop.copy(source, sink)


def test_a_broker_that_dies_and_comes_back(
    cluster: SecuredCluster, shop: Workshop, memory: Memory, topic: Topic
) -> None:
    sink, written = memory("out")
    name = topic(2)
    source = hf.sources.Kafka(name, servers=cluster.address, schema=SCHEMA)
    cluster.send(name, values([("a", n) for n in range(20)]))
    shop.copy(source, sink)
    cluster.send(name, values([("b", n) for n in range(20)]))
    cluster.broker.kill()
    try:
        with pytest.raises(HoldfastError, match="BROKER_UNREACHABLE") as caught:
            shop.copy(source, sink)
        assert classify(caught.value) is FailureClass.DEPENDENCY  # worth another try
    finally:
        cluster.start()
    shop.copy(source, sink)
    expected = [(user, n) for user in "ab" for n in range(20)]
    assert Counter(written()) == Counter(expected)


def test_passwords_are_used_and_not_kept(
    cluster: SecuredCluster,
    shop: Workshop,
    memory: Memory,
    topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, written = memory("out")
    name = topic(1)
    cluster.send(name, values(GOOD))
    source = hf.sources.Kafka(
        name,
        servers=cluster.sasl_address,
        schema=SCHEMA,
        security={
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "PLAIN",
            "username": USER,
            "password": "${env:TEST_KAFKA_PASSWORD}",
        },
    )
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    shop.copy(source, sink)
    assert Counter(written()) == Counter(GOOD)
    cluster.send(name, ["bad"])
    with pytest.raises(BadRecordError):  # Spark shows its plan in its errors
        shop.copy(source, sink)
    for path in Path(shop.path).rglob("*"):
        if path.is_file():
            assert PASSWORD.encode()[:9] not in path.read_bytes(), path
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "wrong")
    with pytest.raises(SettingsError, match="KAFKA_ACCESS_DENIED"):
        shop.copy(source, sink)
    monkeypatch.delenv("TEST_KAFKA_PASSWORD")
    with pytest.raises(SettingsError, match="SECRET_NOT_FOUND"):
        shop.copy(source, sink)
