"""The broker that `holdfast kafka` starts: a real one, that can die and come back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.control.kafka.broker import LocalBroker
from holdfast.errors import ConflictError, NotFoundError
from kafka.cluster import Cluster
from kafka.conftest import JAR_CACHE


def test_topics_are_not_made_by_a_misspelt_name(cluster: Cluster) -> None:
    name = cluster.new_topic(3)
    cluster.send(name, [{"n": n} for n in range(10)])
    assert sorted(
        int(json.loads(value or b"")["n"]) for *_, value in cluster.read(name)
    ) == list(range(10))
    metadata = cluster.admin.list_topics("no-such-topic", timeout=10)
    assert metadata.topics["no-such-topic"].error is not None


def test_a_second_one_and_a_taken_port_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="BROKER_IS_RUNNING"):
        cluster.broker.up()
    other = LocalBroker(tmp_path, cache=JAR_CACHE)
    with pytest.raises(ConflictError, match="PORT_IN_USE"):
        other.up(port=int(cluster.address.rpartition(":")[2]))
    assert other.status() is None


def test_it_comes_back_after_a_kill_and_forgets_after_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = LocalBroker(tmp_path, cache=JAR_CACHE)
    first = broker.up()
    own = Cluster(broker)
    name = own.new_topic(1)
    own.send(name, ["kept"])
    broker.kill()
    status = broker.status()
    assert status is not None
    assert (status.state, status.pid) == ("gone", None)
    with pytest.raises(NotFoundError, match="BROKER_NOT_RUNNING"):
        broker.running()
    second = broker.up()
    assert (second.address, second.directory) == (first.address, first.directory)
    assert [value for *_, value in own.read(name)] == [b"kept"]
    # The command line tells the same.
    assert main(["kafka", "status", "--home", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["topics"], told["address"]) == ("alive", 1, first.address)
    assert main(["kafka", "down", "--home", str(tmp_path)]) == 0
    assert second.pid is not None
    assert not Path("/proc", str(second.pid), "cmdline").exists() or os.waitpid(second.pid, 0)
    assert not first.directory.exists()
    assert broker.status() is None


def test_topics_are_made_and_read_by_command(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    name, servers = f"{cluster.new_topic(1)}-made", ("--servers", cluster.address)
    for made in (True, False):
        assert main(["kafka", "create", name, "--partitions", "3", *servers, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"topic": name, "partitions": 3, "made": made}
    cluster.send(name, [f"record {n}" for n in range(9)])
    assert main(["kafka", "read", name, *servers, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["value"] for row in told) == [f"record {n}" for n in range(9)]
    assert main(["kafka", "read", name, *servers, "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["kafka", "read", "no-such-topic", *servers]) != 0
    assert "TOPIC_NOT_FOUND" in capsys.readouterr().err
