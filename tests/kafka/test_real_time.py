"""Spark's real-time mode: rows in milliseconds, at least once; and what it cannot do."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import functions as f

import holdfast as hf
from holdfast.errors import JobDefinitionError
from kafka.cluster import Cluster
from kafka.workshop import SCHEMA, Copy, Totals, Workshop

REAL_TIME = {"interval": "5 s", "mode": "at_least_once", "latency": "real_time"}
Topic = Callable[..., str]


class Sums:
    """Totals per user by Spark's own aggregation."""

    def __init__(self, source: hf.sources.Source, sink: hf.sinks.Sink) -> None:
        self._source, self._sink = source, sink

    def __call__(self, flow: hf.Flow) -> None:
        edits = flow.key_by(flow.source("edits", self._source), "user")
        flow.sink("out", edits.aggregate("sums", total=f.sum("diff")), self._sink)


def kafka(cluster: Cluster, source: str, target: str) -> tuple[Any, Any]:
    return (
        hf.sources.Kafka(source, servers=cluster.address, schema=SCHEMA),
        hf.sinks.Kafka(target, servers=cluster.address, key="user", guarantee="at_least_once"),
    )


def last_totals(cluster: Cluster, topic: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, _, value in sorted(cluster.read(topic), key=lambda row: row[:2]):
        row = json.loads(value or b"{}")
        found[row["user"]] = row["total"]
    return found


def test_totals_are_written_before_the_epoch_ends_and_go_on_after_a_restart(
    cluster: Cluster, topic: Topic, shop: Workshop
) -> None:
    name, out = topic(1), topic(1)
    truth: dict[str, int] = defaultdict(int)
    waited: list[float] = []

    def send_and_wait(rows: list[tuple[str, int]]) -> float:
        began = time.monotonic()
        for user, diff in rows:
            truth[user] += diff
        cluster.send(name, [{"user": user, "diff": diff} for user, diff in rows])
        _await(lambda: last_totals(cluster, out) == dict(truth))
        return time.monotonic() - began

    def feed() -> None:
        send_and_wait([("a", 1), ("b", 2)])  # waits for the start of everything
        waited.extend(send_and_wait([("a", number), ("c", 1)]) for number in range(3))

    sums = Sums(*kafka(cluster, name, out))
    for epochs in (4, 3):
        with ThreadPoolExecutor(1) as pool:
            fed = pool.submit(feed)
            shop.run(sums, max_epochs=epochs, checkpoint=REAL_TIME, parallelism=1)
            fed.result()
    # An epoch lasts 5 s; if rows came at its end, half of them would wait for longer.
    assert sorted(waited)[len(waited) // 2] < 2.5, waited
    records = shop.epochs()
    assert sum(epoch.input_rows for epoch in records) >= 14
    assert records[-1].state["sums"].rows == 3


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.05)


def test_what_it_cannot_do_is_refused_with_the_reason(
    cluster: Cluster, topic: Topic, shop: Workshop, memory: Any
) -> None:
    source, sink = kafka(cluster, topic(1), topic(1))
    refused: list[tuple[Any, dict[str, str], str]] = [
        (Totals(source, sink), REAL_TIME, "'totals' is a process"),
        (Sums(source, memory("out")[0]), REAL_TIME, "its sinks are 'out'"),
        (Copy(source, sink), REAL_TIME | {"interval": "1 s"}, "the interval is 1 s"),
        (Copy(replace(source, max_per_epoch=5), sink), REAL_TIME, "has max_per_epoch"),
        (
            Copy(source, replace(sink, guarantee="exactly_once")),
            REAL_TIME | {"mode": "exactly_once"},
            "mode is 'exactly_once'",
        ),
        (Sums(replace(source, topics=topic(9)), sink), REAL_TIME, "task slots"),
    ]
    for number, (pipeline, checkpoint, reason) in enumerate(refused):
        with pytest.raises(JobDefinitionError, match="REAL_TIME_NOT_POSSIBLE") as caught:
            shop.run(pipeline, f"job-{number}", max_epochs=1, checkpoint=checkpoint)
        assert reason in str(caught.value)
    with pytest.raises(JobDefinitionError, match="no --available-now"):
        shop.run(Copy(source, sink), "now", checkpoint=REAL_TIME)
