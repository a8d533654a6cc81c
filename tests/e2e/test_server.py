"""A small job from start to end, over REST and by commands; a server dies in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.drivers import COMMAND, PATIENCE, Home
from holdfast.client import Client
from holdfast.client.requests import (
    RescaleRequest,
    SavepointRequest,
    StartRequest,
    StopRequest,
    UpgradeRequest,
)
from holdfast.drill.waiting import wait
from holdfast.faults import fired_points
from holdfast.storage.processes import session_members

JOB = """
import holdfast as hf

class Balance(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, row, ctx):
        self.total.value += row.n
        yield row.user, self.total.value

job = hf.Job("balances", parallelism=2, checkpoint=hf.CheckpointConfig(interval="500 ms"),
             arguments={"times": 1})

@job.pipeline
def pipeline(flow):
    rows = flow.source("rows", hf.sources.Files("in", format="json", schema="user string, n bigint"))
    rows = rows.selectExpr("user", f"n * {job.arguments['times']} AS n")
    flow.sink("out", flow.key_by(rows, "user").process("balances", Balance()),
              hf.sinks.Files("out", format="parquet"))
"""  # noqa: E501


@contextmanager
def serving(
    home: Home, jobs: Path, faults: str = ""
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
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
            env=home.variables(faults),
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
            request = StartRequest(app=app.path, arguments={"times": "10"})
            started = client.wait(client.start(request), timeout=PATIENCE)
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
            assert found.rows == [["ann", 120]]  # what the start was told is kept
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_commands_start_jobs_by_way_of_the_server(tmp_path: Path) -> None:
    """They are on record, and an operation that is cancelled leaves the job alone."""
    jobs, faults = tmp_path / "jobs", "operation.started=gate:/nonexistent once"
    home = Home(tmp_path, typed_in=jobs)
    (jobs / "in").mkdir(parents=True)
    (jobs / "in" / "0.json").write_text('{"user": "ann", "n": 5}\n')
    (jobs / "balances.py").write_text(JOB)

    def command(*arguments: str) -> dict[str, Any]:
        done = home.call(*arguments, "--json", HOLDFAST_FAULTS=faults)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    try:
        with serving(home, jobs, faults) as (_, client):
            started = command("run", "balances.py", "--detach")
            assert (started["job"], started["pid"]) == ("balances", _supervisor(home))
            wait(lambda: client.job("balances").epoch is not None, "an epoch")
            upgrade = UpgradeRequest(app=str(jobs / "balances.py"), healthy_epochs=1)
            asked = client.ask("balances", upgrade)
            wait(lambda: fired_points(home.faults_log) != [], "new code that runs")
            supervisor = _supervisor(home)
            assert supervisor != started["pid"]
            cancelled = command("operation", "cancel", asked.id)
            assert "The job is RUNNING and runs." in cancelled["error"]["message"]
            assert client.job("balances").running and _supervisor(home) == supervisor
            (jobs / "in" / "1.json").write_text('{"user": "bob", "n": 1}\n')
            client.wait(client.ask("balances", upgrade), timeout=PATIENCE)  # goes on
            assert _supervisor(home) == supervisor
            fork = command("fork", "balances", "balances.py", "--name", "copy", "--detach")
            assert (fork["job"], fork["pid"]) == ("copy", _supervisor(home, "copy"))
            assert command("promote", "copy", "--sink", "keep")["job"] == "balances"
            command("suspend", "balances")
            assert command("resume", "balances", "--detach")["job"] == "balances"
            command("stop", "balances")
            assert [f"{each.kind} {each.state}" for each in client.operations()][::-1] == [
                "start SUCCEEDED",
                "upgrade CANCELLED",
                "upgrade SUCCEEDED",
                "fork SUCCEEDED",
                "promote SUCCEEDED",
                "suspend SUCCEEDED",
                "resume SUCCEEDED",
                "stop SUCCEEDED",
            ]
    finally:
        for job in ("balances", "copy"):
            with suppress(FileNotFoundError):
                for member in session_members(_supervisor(home, job)):
                    os.kill(member, signal.SIGKILL)


def _supervisor(home: Home, job: str = "balances") -> int:
    """The process that runs the job now: it was started anew."""
    lease = json.loads((home.path / "home" / "jobs" / job / "lease.json").read_text())
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
