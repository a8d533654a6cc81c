"""The local cluster as a user types it: jobs on it are exact, whoever dies."""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from e2e.drivers import Driver, Home
from holdfast.control.cluster.plan import DEFAULTS_FILE, WEB_KEY, conf_value
from holdfast.control.cluster.processes import MARK_VARIABLE
from holdfast.drill.waiting import wait
from holdfast.storage.file_sink_log import committed_files
from holdfast.storage.filelog import FileLogProducer

JOB = """\
import time
from pathlib import Path

import holdfast as hf

from arithmetic import add  # executors have it only if it was sent to them

HELD, BEGUN = Path({place!r}, "held"), Path({place!r}, "begun")


class Totals(hf.KeyedProcess):
    seen = hf.ValueState("bigint", default=0)
    total = hf.ValueState("bigint", default=0)
    output = "id bigint, user string, seen bigint, total bigint"

    def process(self, edit, ctx):
        while HELD.exists():
            BEGUN.touch()
            time.sleep(0.05)
        self.seen.value += 1
        self.total.value = add(self.total.value, edit.diff)
        yield edit.id, edit.user, self.seen.value, self.total.value


job = hf.Job("totals", checkpoint=hf.CheckpointConfig(interval="500 ms"), parallelism=2)


@job.pipeline
def pipeline(flow):
    schema = "id bigint, user string, diff bigint"
    edits = flow.source("edits", hf.sources.FileLog("edits", schema=schema))
    totals = flow.key_by(edits, "user").process("totals", Totals())
    flow.sink("out", totals, hf.sinks.Files("out"))
"""
ARITHMETIC = """\
from numbers_of_ours.sums import add
"""
SUMS = """\
def add(a, b):
    return a + b
"""


@dataclass
class Bench:
    """A cluster, a job that can be held in the middle of an epoch, and its input."""

    home: Home
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def job(self) -> Path:
        return self.home.path / "app" / "totals.py"

    @property
    def cluster(self) -> Path:
        return self.home.path / "home" / "cluster"

    def write_job(self) -> None:
        app = self.home.path / "app"
        (app / "numbers_of_ours").mkdir(parents=True)
        self.job.write_text(JOB.format(place=str(self.home.path)))
        (app / "arithmetic.py").write_text(ARITHMETIC)
        (app / "numbers_of_ours" / "__init__.py").touch()
        (app / "numbers_of_ours" / "sums.py").write_text(SUMS)

    def send(self, count: int) -> None:
        draw = random.Random(len(self.sent))
        # Two segments, so that there is work for both executors.
        with FileLogProducer(self.home.path / "edits", max_records=count // 2) as log:
            for _ in range(count):
                user = f"user-{draw.randrange(50)}"
                edit = {"id": len(self.sent), "user": user, "diff": draw.randint(-99, 99)}
                log.send(edit)
                self.sent.append(edit)

    def hold(self) -> None:
        (self.home.path / "begun").unlink(missing_ok=True)
        (self.home.path / "held").touch()

    def wait_until_held(self, driver: Driver) -> None:
        def held() -> bool:
            assert driver.process.poll() is None, "the driver has ended"
            return (self.home.path / "begun").exists()

        wait(held, "an epoch in its middle")

    def release(self) -> None:
        (self.home.path / "held").unlink()

    def rows(self) -> list[dict[str, Any]]:
        files = committed_files(self.home.path / "out")
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def require_exact(self) -> None:
        """Every edit once; per user every number once, and the sum at the last one."""
        rows = self.rows()
        assert sorted(row["id"] for row in rows) == [edit["id"] for edit in self.sent]
        edits: dict[str, list[dict[str, Any]]] = defaultdict(list)
        totals: dict[str, dict[int, int]] = defaultdict(dict)
        for edit in self.sent:
            edits[edit["user"]].append(edit)
        for row in rows:
            totals[row["user"]][row["seen"]] = row["total"]
        assert totals.keys() == edits.keys()
        for user, own in edits.items():
            assert sorted(totals[user]) == list(range(1, len(own) + 1))
            assert totals[user][len(own)] == sum(edit["diff"] for edit in own)

    def secrets(self) -> tuple[str, str]:
        text = (self.cluster / "conf" / DEFAULTS_FILE).read_text()
        return conf_value(text, "spark.authenticate.secret"), conf_value(text, WEB_KEY)

    def members(self) -> list[psutil.Process]:
        """Everything that the cluster has started, executors and Python workers included."""
        found = []
        for process in psutil.process_iter():
            try:
                mark = process.environ().get(MARK_VARIABLE, "")
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if mark.startswith(f"{self.id}/"):
                found.append(process)
        return found

    @property
    def id(self) -> str:
        if not self._id:
            self._id = json.loads((self.cluster / "cluster.json").read_text())["id"]
        return self._id

    _id: str = ""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(Home(tmp_path_factory.mktemp("cluster")))
    bench.write_job()
    started = bench.home.json("cluster", "up", "--workers", "2", "--memory", "512m")
    assert [member["state"] for member in started] == ["alive"] * 3
    assert bench.id
    yield bench
    ended = bench.home.call("cluster", "down")
    assert ended.returncode == 0, ended.stderr
    assert bench.members() == []


def listening(process: psutil.Process) -> set[str]:
    try:
        connections = process.net_connections(kind="inet")
    except psutil.NoSuchProcess:
        return set()
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def states(bench: Bench) -> dict[str, str]:
    return {member["name"]: member["state"] for member in bench.home.json("cluster", "ps")}


def living_workers(bench: Bench) -> list[str]:
    """Another test may have killed one."""
    return [
        name for name, state in states(bench).items() if name != "master" and state == "alive"
    ]


def test_one_cluster_per_home(bench: Bench) -> None:
    second = bench.home.call("cluster", "up")
    assert second.returncode == 4
    assert "CLUSTER_IS_RUNNING: there is a cluster already: spark://127.0.0.1:" in second.stderr
    assert "worker-2 (process " in second.stderr
    assert states(bench) == {"master": "alive", "worker-1": "alive", "worker-2": "alive"}


@pytest.mark.timeout(400)
def test_one_of_two_workers_is_lost(bench: Bench) -> None:
    """In the middle of an epoch, and before that an executor alone; and a look at what is open
    to others."""
    bench.hold()
    bench.send(400)
    with bench.home.driver(bench.job, "--master", "cluster", "--available-now") as driver:
        bench.wait_until_held(driver)
        require_nothing_open(bench)
        executor_of(bench, "worker-2").kill()
        wait(lambda: driver.events("executor_lost"), "the loss of the executor")
        wait(lambda: len(driver.events("executor_added")) == 3, "its replacement")
        assert set(states(bench).values()) == {"alive"}
        killed = bench.home.json("cluster", "kill", "worker-1")
        assert len(killed["pids"]) > 2  # worker, executor, Python
        assert not {process.pid for process in bench.members()} & set(killed["pids"])
        wait(lambda: len(driver.events("executor_lost")) == 2, "the loss of the worker")
        bench.release()
        assert driver.end() == 0
        lost = [event["data"] for event in driver.events("executor_lost")]
        (over,) = driver.events("loss_overcome")
    bench.require_exact()
    assert over["data"]["executors"] == [each["executor"] for each in lost]
    assert over["data"]["seconds"] > 0
    for each in lost:
        # One core, hence one task; each of the two has a partition of the same stage.
        assert (each["tasks"], each["left"]) == (1, 1)
        assert each["address"].startswith("127.0.0.1:")
    (first,), (second,) = (each["retried"] for each in lost)
    assert first["stage"] == second["stage"]
    assert {first["partition"], second["partition"]} == {0, 1}
    assert states(bench) == {"master": "alive", "worker-1": "gone", "worker-2": "alive"}
    again = bench.home.call("cluster", "kill", "worker-1")
    assert again.returncode == 3
    assert "WORKER_NOT_FOUND" in again.stderr


def executor_of(bench: Bench, worker: str) -> psutil.Process:
    members = bench.home.json("cluster", "ps")
    (pid,) = [member["pid"] for member in members if member["name"] == worker]
    (found,) = [each for each in psutil.Process(pid).children() if each.name() == "java"]
    return found


def require_nothing_open(bench: Bench) -> None:
    commands = subprocess.check_output(["ps", "axww", "-o", "args="], text=True)
    assert commands.count("CoarseGrainedExecutorBackend") >= 2
    assert not any(secret in commands for secret in bench.secrets())
    addresses = {address for process in bench.members() for address in listening(process)}
    assert addresses
    assert all(
        ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
        for address in addresses
    )


@pytest.mark.long
@pytest.mark.timeout(400)
def test_all_workers_are_lost_and_come_back(bench: Bench) -> None:
    bench.hold()
    bench.send(400)
    with bench.home.driver(bench.job, "--master", "cluster", "--available-now") as driver:
        bench.wait_until_held(driver)
        for worker in living_workers(bench):
            bench.home.json("cluster", "kill", worker)
        wait(lambda: driver.events("no_executors"), "the news that nobody is left")
        assert driver.process.poll() is None
        bench.release()
        bench.home.json("cluster", "add", "--workers", "2")
        assert set(states(bench).values()) == {"alive"}
        assert driver.end() == 0
        (back,) = driver.events("executors_back")
        assert back["data"]["seconds"] > 0
    bench.require_exact()
    logs = [*bench.cluster.glob("logs/*"), *bench.cluster.glob("work/**/std*")]
    assert len(logs) >= 5
    for log in logs:
        text = log.read_text(errors="replace")
        assert not any(secret in text for secret in bench.secrets())
        # It would warn of every new key.
        assert "TransformWithStateInPySparkStateServer" not in text


def test_down_leaves_nothing(bench: Bench) -> None:
    workers = living_workers(bench)
    down = bench.home.json("cluster", "down")
    assert down == {"ended": ["master", *workers]}
    assert bench.members() == []
    assert {path.name for path in bench.cluster.iterdir()} == {"lock", "logs", "work"}
    assert bench.home.json("cluster", "ps") == []
    failed = bench.home.call("run", str(bench.job), "--master", "cluster")
    assert failed.returncode == 3
    assert "CLUSTER_NOT_RUNNING: there is no local cluster in " in failed.stderr
    assert "Fix: `holdfast cluster up` starts one" in failed.stderr
