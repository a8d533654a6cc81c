"""A small job from start to end over REST, by the client; its server dies in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from e2e.drivers import COMMAND, PATIENCE, Home
from holdfast.client import Client
from holdfast.client.requests import (
    RescaleRequest,
    SavepointRequest,
    StartRequest,
    StopRequest,
)
from holdfast.drill.waiting import wait
from holdfast.storage.processes import session_members

JOB = """
import holdfast as hf

class Balance(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, row, ctx):
        self.total.value += row.n
        yield row.user, self.total.value

job = hf.Job("balances", parallelism=2, checkpoint=hf.CheckpointConfig(interval="500 ms"))

@job.pipeline
def pipeline(flow):
    rows = flow.source("rows", hf.sources.Files("in", format="json", schema="user string, n bigint"))
    flow.sink("out", flow.key_by(rows, "user").process("balances", Balance()),
              hf.sinks.Files("out", format="parquet"))
"""  # noqa: E501


@contextmanager
def serving(home: Home, jobs: Path) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    with (home.path / "server.err").open("a") as errors:
        process = subprocess.Popen(
            [
                *COMMAND,
                "server",
                "--allow-root",
                "--port",
                "0",
                "--json",
                "--job-root",
                str(jobs),
            ],
            cwd=home.path,
            env=home.variables(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["event"] == "listening"
        with Client.here(home.path / "home") as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(900)
def test_a_job_over_rest(tmp_path: Path) -> None:
    home, jobs = Home(tmp_path), tmp_path / "jobs"
    (jobs / "in").mkdir(parents=True)
    (jobs / "balances.py").write_text(JOB)

    def feed(user: str, amount: int) -> None:
        number = len(list((jobs / "in").iterdir()))
        hidden = jobs / "in" / f".{number}"
        hidden.write_text(json.dumps({"user": user, "n": amount}) + "\n")
        hidden.rename(jobs / "in" / f"{number}.json")

    feed("ann", 5)
    supervisor = 0
    try:
        with serving(home, jobs) as (process, client):
            [app] = client.apps()
            assert app.jobs == ["balances"]
            started = client.wait(client.start(StartRequest(app=app.path)), timeout=PATIENCE)
            assert started.result is not None
            supervisor = int(started.result["pid"])
            wait(lambda: client.job("balances").epoch is not None, "an epoch")
            assert client.health("balances").status == "ok"
            _only_loopback(supervisor)
            taken = client.wait(client.ask("balances", SavepointRequest(label="first")))
            assert taken.result is not None
            savepoint = taken.result["savepoint"]
            feed("ann", 7)
            planned = client.wait(client.plan("balances", RescaleRequest(parallelism=3)))
            assert planned.result is not None and planned.result["refused"] is False
            outcomes = {part["uid"]: part["outcome"] for part in planned.result["parts"]}
            assert outcomes["balances"] == "restored"
            rescaling = client.ask("balances", RescaleRequest(parallelism=3))
            wait(lambda: client.operation(rescaling.id).state == "RUNNING", "its process")
            process.send_signal(signal.SIGKILL)  # the server, in the middle of it
            process.wait()
        with serving(home, jobs) as (_, client):
            rescaled = client.wait(rescaling, timeout=PATIENCE)
            assert rescaled.result is not None and rescaled.result["parallelism"] == 3
            supervisor = _supervisor(home)
            feed("bob", 1)
            wait(lambda: client.sinks("balances")[0].rows == 3, "all rows")
            found = client.state_key("balances", "balances", "ann", fresh=True)
            assert found.rows == [["ann", 12]]
            assert client.savepoint(savepoint).label == "first"
            assert [each.origin for each in client.timelines("balances")] == [
                "",
                rescaled.result["savepoint"],
            ]
            ended = client.wait(client.ask("balances", StopRequest()), timeout=PATIENCE)
            assert ended.result is not None and ended.result["state"] == "FINISHED"
            assert client.health("balances").status == "stopped"
    finally:
        for member in session_members(supervisor) if supervisor else ():
            os.kill(member, signal.SIGKILL)


def _supervisor(home: Home) -> int:
    """The process that runs the job now: it was started anew."""
    lease = json.loads((home.path / "home" / "jobs" / "balances" / "lease.json").read_text())
    return int(lease["pid"])


def _only_loopback(supervisor: int) -> None:
    """SR-01 of the whole tree: supervisor, driver, JVM, Python workers."""
    tree = [psutil.Process(supervisor), *psutil.Process(supervisor).children(recursive=True)]
    addresses = {
        each.laddr.ip
        for process in tree
        for each in process.net_connections()
        if each.status == psutil.CONN_LISTEN
    }
    assert addresses and addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
