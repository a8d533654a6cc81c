"""A driver that is killed: the totals stay exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from e2e.drivers import Home
from holdfast.demo.edits import generate
from holdfast.faults import fired_points
from holdfast.storage.file_sink_log import committed_files
from kafka.cluster import Cluster
from spark.workplace import running_totals

APP = """
import holdfast as hf
from spark.processes import RunningTotal

job = hf.Job("totals", parallelism=2, checkpoint=hf.CheckpointConfig(interval="1 s"))


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    source = hf.sources.Kafka(
        {topic!r}, servers={servers!r}, schema="user string, diff bigint", max_per_epoch=200
    )
    totals = flow.key_by(flow.source("edits", source), "user").process("sum", RunningTotal())
    flow.sink("out", totals, hf.sinks.Files("out"))
"""


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for file in committed_files(folder):
        table = pq.read_table(file)
        found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return found


@pytest.mark.long
def test_kill_9_in_the_middle_of_an_epoch(
    cluster: Cluster, topic: Callable[..., str], jars: str, tmp_path: Path
) -> None:
    name = topic(2)
    records = [{"user": e["user"], "diff": e["diff"]} for e in generate(600, users=9, seed=5)]
    for partition in range(2):  # a user's records in one partition, so their order is known
        own = [record for record in records if len(record["user"]) % 2 == partition]
        cluster.send(name, own, partition)
    app = tmp_path / "app.py"
    app.write_text(APP.format(topic=name, servers=cluster.address))
    home = Home(tmp_path)
    (tmp_path / "home").mkdir()
    settings = f'master = "local[2]"\nkafka_jars = "{jars}"\n'
    (tmp_path / "home" / "holdfast.toml").write_text(settings)
    # The second epoch has been written by its sink, and is not committed yet.
    with home.driver(app, "--available-now", faults="epoch.end=kill@2") as driver:
        assert driver.end() != 0
    assert fired_points(home.faults_log) == ["epoch.end"]
    with home.driver(app, "--available-now") as driver:
        assert driver.end() == 0
    rows = rows_of(tmp_path / "out")
    expected = running_totals(records)
    assert len(rows) == len(records)
    for user in {record["user"] for record in records}:
        assert [row for row in rows if row[0] == user] == [
            row for row in expected if row[0] == user
        ]
