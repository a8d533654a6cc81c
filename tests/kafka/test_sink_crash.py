"""Processes and the broker are killed around a commit: a consumer sees every row once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from e2e.drivers import Driver, Home
from holdfast.checkpoint.lease import LEASE_SECONDS, LeaseFile
from holdfast.control.kafka.broker import LocalBroker
from holdfast.drill.edits import Edits
from holdfast.drill.on_cluster import is_java
from holdfast.drill.waiting import wait
from holdfast.faults import FAULTS_VARIABLE, LOG_VARIABLE, fired_faults, fired_points
from holdfast.storage.processes import is_alive, parent_of, session_members
from kafka.cluster import Cluster
from kafka.conftest import JAR_CACHE

APP = """
import holdfast as hf
from holdfast.demo.job import RunningBalance

job = hf.Job("{name}", checkpoint=hf.CheckpointConfig(interval="0.2 s"), parallelism=2)


@job.pipeline
def pipeline(flow):
    edits = flow.source(
        "edits",
        hf.sources.FileLog(
            "edits", schema="edit bigint, user string, diff bigint", max_segments_per_epoch=2
        ),
    )
    balances = flow.key_by(edits, "user").process("balances", RunningBalance())
    sink = hf.sinks.Kafka(
        "{topic}", servers="{servers}", key="user", transaction_timeout="{timeout}"
    )
    flow.sink("out", balances, sink)
"""


class Story:
    """A job whose output goes to a topic, and what that has to hold."""

    def __init__(
        self, cluster: Cluster, topic: str, path: Path, timeout: str = "10 min"
    ) -> None:
        self.cluster, self.topic, self.home = cluster, topic, Home(path)
        self.edits = Edits(path / "edits", segment=40)
        self.app, self.gate = path / "app.py", path / "gate"
        text = APP.format(name=topic, topic=topic, servers=cluster.address, timeout=timeout)
        self.app.write_text(text, encoding="utf-8")

    def waits_at(self, point: str) -> str:
        """For a worker of the job, in its first epoch."""
        return json.dumps({point: f"gate:{self.gate} once"})

    def arm_executors(self, point: str) -> None:
        """They inherit nothing from a driver, so it comes to them through Spark."""
        armed = {FAULTS_VARIABLE: self.waits_at(point), LOG_VARIABLE: self.home.faults_log}
        lines = [f"\"executorEnv.{name}\" = '{value}'" for name, value in armed.items()]
        settings = self.home.path / "home" / "holdfast.toml"
        settings.parent.mkdir()
        settings.write_text("\n".join(["[spark]", *lines]))

    def wait_for_fault(self, count: int = 1) -> None:
        wait(lambda: len(fired_points(self.home.faults_log)) == count, "the fault")

    def finish(self) -> None:
        with self.home.driver(self.app, "--available-now") as driver:
            assert driver.end() == 0, (self.home.path / "stderr.log").read_text()

    def is_exact(self) -> bool:
        """Every edit has its row, once, and the newest of each user in the order of the topic
        is its balance."""
        rows = [
            (partition, offset, json.loads(value or b"{}"))
            for partition, offset, value in sorted(self.cluster.read(self.topic))
        ]
        sent = [
            json.loads(line)
            for path in sorted((self.home.path / "edits").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        assert len(sent) == self.edits.sent
        counts = Counter(row["edit"] for _, _, row in rows)
        assert counts == Counter(edit["edit"] for edit in sent)
        balances: Counter[str] = Counter()
        for edit in sent:
            balances[edit["user"]] += edit["diff"]
        newest = {row["user"]: row["total"] for _, _, row in rows}
        assert newest == dict(balances)
        return True


@pytest.fixture
def story(cluster: Cluster, topic: Callable[..., str], tmp_path: Path) -> Story:
    return Story(cluster, topic(3), tmp_path)


@pytest.mark.timeout(600)
def test_the_driver_and_its_workers_are_killed_around_a_commit(story: Story) -> None:
    points = ("kafka.before_marker", "kafka.before_commit", "kafka.after_commit")
    for number, point in enumerate(points, 1):
        story.edits.send(8)
        with story.home.driver(story.app, faults=story.waits_at(point)) as driver:
            story.wait_for_fault(number)
            driver.kill()
    assert fired_points(story.home.faults_log) == list(points)
    story.finish()
    assert story.is_exact()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_executor_is_killed_before_a_commit(story: Story) -> None:
    """Its task is run again elsewhere, in the same attempt. The Python worker that waited to
    commit for it may live on, and is refused."""
    home, point = story.home, "kafka.before_commit"
    story.edits.send(8)
    story.arm_executors(point)
    home.json("cluster", "up", "--workers", "2", "--memory", "512m")
    try:
        with home.driver(story.app, "--master", "cluster", "--available-now") as driver:
            story.wait_for_fault()
            (fired,) = fired_faults(home.faults_log)
            os.kill(_java_above(fired.pid), signal.SIGKILL)
            assert driver.end() == 0, (home.path / "stderr.log").read_text()
        story.gate.touch()
        wait(lambda: not is_alive(fired.pid, None), "the end of the worker that was replaced")
        assert len(home.json("attempts", story.topic)) == 1
        kinds = {event["kind"] for event in home.json("events", story.topic)}
        assert {"executor_lost", "loss_overcome"} <= kinds
    finally:
        assert home.call("cluster", "down").returncode == 0
    assert story.is_exact()


def _java_above(pid: int) -> int:
    while not is_java(pid):
        pid = parent_of(pid) or 1
    return pid


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "away",
    [
        pytest.param(0.0, id="at once"),
        pytest.param(15.0, id="after the timeout", marks=pytest.mark.long),
    ],
)
def test_the_broker_is_killed_in_the_middle_of_a_commit(tmp_path: Path, away: float) -> None:
    """It comes back before or after the transaction's time is over."""
    broker = LocalBroker(tmp_path / "broker", cache=JAR_CACHE)
    broker.up()
    try:
        cluster = Cluster(broker)
        story = Story(
            cluster, cluster.new_topic(3), tmp_path, timeout="5 s" if away else "10 min"
        )
        story.edits.send(8)
        faults = story.waits_at("kafka.before_commit")
        with story.home.driver(story.app, "--available-now", faults=faults) as driver:
            story.wait_for_fault()
            broker.kill()
            time.sleep(away)  # the time that it is away is the test's input, not a wait
            broker.up()
            story.gate.touch()
            # It may have gone through, or the attempt ends and the next one finds out.
            driver.end()
        story.finish()
        assert story.is_exact()
    finally:
        broker.down()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_that_slept_through_its_replacement_writes_nothing(story: Story) -> None:
    story.edits.send(8)
    faults = story.waits_at("kafka.before_commit")
    with story.home.driver(story.app, faults=faults) as zombie:
        story.wait_for_fault()
        _signal(zombie, signal.SIGSTOP)
        lease = LeaseFile(story.home.path / "home" / "jobs" / story.topic, story.topic)
        wait(lambda: _age(lease) > LEASE_SECONDS, "a lease that nobody renews")
        story.finish()
        assert story.is_exact()
        story.gate.touch()
        _signal(zombie, signal.SIGCONT)
        assert zombie.end() != 0
    assert "FENCED" in (story.home.path / "stderr.log").read_text()
    assert story.is_exact()


def _signal(driver: Driver, number: signal.Signals) -> None:
    for pid in session_members(driver.process.pid):
        os.kill(pid, number)


def _age(lease: LeaseFile) -> float:
    found = lease.read()
    assert found is not None
    return (datetime.now(UTC) - found.renewed).total_seconds()
