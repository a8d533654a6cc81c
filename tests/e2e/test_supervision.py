"""A supervised job and everything that can be killed of it: balances exact after each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from e2e.drivers import COMMAND, PATIENCE, Home
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.lease import LEASE_SECONDS, LeaseFile
from holdfast.control.registry import AttemptRow, Registry
from holdfast.control.states import RunState
from holdfast.demo.place import JOB as DEMO
from holdfast.demo.place import JOB_FILE
from holdfast.demo.proof import prove
from holdfast.drill.edits import Edits
from holdfast.drill.visible import half_visible
from holdfast.drill.waiting import wait
from holdfast.faults import fired_points
from holdfast.storage.processes import session_members

JOB = "wiki"
APP = """
import holdfast as hf
from holdfast.demo.job import RunningBalance, pipeline

class Balance(RunningBalance):
    def process(self, edit, ctx):
        {broken}
        return super().process(edit, ctx)

job = hf.Job(
    "wiki",
    checkpoint=hf.CheckpointConfig(interval="0.2 s"{checkpoint}),
    restart=hf.FixedDelay(attempts=10, delay="0.1 s"),
    parallelism=2,
    on_failed=["tee", "hook.json"],
)

@job.pipeline
def flow_of(flow):
    edits = flow.source("edits", hf.sources.FileLog(
        "edits", schema="edit bigint, user string, diff bigint", max_segments_per_epoch=5))
    balances = flow.key_by(edits, "user").process("balances", Balance())
    flow.sink("out", balances, hf.sinks.Files("balances", format="parquet"))
"""


class Supervised:
    """A job with a supervisor in the background."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.edits = Edits(path / "edits")
        self.directory = path / "home" / "jobs" / JOB
        self.app = path / "app.py"
        self.write()

    def write(self, broken: str = "pass", checkpoint: str = "") -> None:
        self.app.write_text(APP.format(broken=broken, checkpoint=checkpoint))

    def call(self, *arguments: str, **variables: str) -> Any:
        done = self.home.call(*arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def go_elsewhere(self) -> None:
        """From here on commands are typed in another directory, where no input is."""
        elsewhere = self.home.path / "elsewhere"
        elsewhere.mkdir()
        self.home = replace(self.home, typed_in=elsewhere)

    @contextmanager
    def started(self, *command: str, **variables: str) -> Iterator[int]:
        """The supervisor's pid; whatever happens, nothing is left running."""
        patience = {"HOLDFAST_HEARTBEAT_TIMEOUT": "6 s"} | variables
        detached = self.call(*command, "--detach", **patience)
        try:
            yield detached["pid"]
        finally:
            end(detached["pid"])
            lease = LeaseFile(self.directory, JOB).read()
            if lease is not None and lease.owner:
                end(lease.pid)  # an operation has started another one
            if lease is not None and lease.session is not None:
                wait(lambda: not session_members(lease.session or 0), "the driver's end")

    def attempt(self) -> AttemptRow:
        """Not by the command: a process for each look would take a core from the job."""
        with Registry(f"sqlite:///{self.home.path / 'home' / 'registry.db'}") as registry:
            return registry.attempts(registry.job(JOB).id)[-1]

    def has_attempt(self, number: int) -> bool:
        return self.attempt().number >= number

    def driver(self) -> int:
        return self.attempt().pid

    def committed(self) -> int:
        last = JobDirectory(self.directory.parent, JOB).last_committed()
        return -1 if last is None else last

    def wait_for_progress(self) -> None:
        """New input is committed: the job is well."""
        before = self.committed()
        self.edits.send(2)
        wait(lambda: self.committed() > before, "the next epoch")

    def rows_out(self) -> int:
        """What a reader of the output counts now."""
        query = "SELECT count(*) FROM read_parquet(?)"
        files = [str(path) for path in (self.home.path / "balances").glob("*.parquet")]
        try:
            row = duckdb.connect().execute(query, [files]).fetchone() if files else None
        except duckdb.IOException:
            return -1  # a file was removed meanwhile
        return row[0] if row else 0

    def is_exact(self) -> bool:
        path = self.home.path
        assert half_visible(path / "balances") == ()
        return prove(path / "edits", path / "balances", self.edits.sent).holds


def end(pid: int) -> None:
    """kill -9, whether it is our child or not."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait(lambda: not psutil.pid_exists(pid) or _is_zombie(pid), "the supervisor's end")


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def spoil(registry: Path) -> None:
    """As a broken disk would."""
    for file in registry.parent.glob("registry.db*"):
        file.write_bytes(b"\xff" * 65536)


def jvm_of(driver: int) -> int:
    (jvm,) = [p.pid for p in psutil.Process(driver).children() if p.name() == "java"]
    return jvm


@pytest.mark.timeout(400)
def test_whatever_is_killed_the_job_restarts_by_itself(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.edits.send(4)
    deadly = tmp_path / "deadly"
    faults: dict[str, Callable[[int], None]] = {
        "DRIVER_DIED": lambda driver: os.kill(driver, signal.SIGKILL),
        "JVM_DIED": lambda driver: os.kill(jvm_of(driver), signal.SIGKILL),
        "PYTHON_WORKER_DIED": lambda _: deadly.touch(),
        # Python still beats, but the JVM does not answer it.
        "DRIVER_HUNG": lambda driver: os.kill(jvm_of(driver), signal.SIGSTOP),
    }
    # The worker that finds the file removes it and kills itself, in the middle of an epoch.
    job.write(
        broken=f"p = __import__('pathlib').Path({str(deadly)!r}); "
        "p.exists() and (p.unlink(), __import__('os').kill(__import__('os').getpid(), 9))"
    )
    with job.started("run", str(job.app)):
        for number, (name, inject) in enumerate(faults.items(), 1):
            job.wait_for_progress()
            driver = job.driver()
            inject(driver)
            if name == "PYTHON_WORKER_DIED":
                job.edits.send(2)
            wait(partial(job.has_attempt, number + 1), "the next attempt")
            assert not session_members(driver), "the JVM is gone before the next attempt"
        job.wait_for_progress()
        if shutil.which("jcmd"):  # a JRE has none
            (jvm, *_) = job.home.json("threads", JOB)
            assert jvm["pid"] == jvm_of(job.driver()) and '"main"' in jvm["text"]
        assert job.call("stop", JOB) == {"job": JOB, "asked": "stop", "state": "FINISHED"}
    assert job.is_exact()
    attempts = job.home.json("attempts", JOB)
    assert [each["error"] and each["error"]["name"] for each in attempts] == [*faults, None]
    classes = ["lost_driver", "lost_driver", "lost_worker", "hung", None]
    assert [each["failure_class"] for each in attempts] == classes
    assert not deadly.exists()
    events = [event["kind"] for event in job.home.json("events", JOB)]
    assert events.count("restart") == len(faults)
    assert events[-1] == "request"
    shown = job.home.call("events", JOB).stdout
    assert "restart 4 of 10" in shown


@pytest.mark.long
@pytest.mark.timeout(400)
def test_code_that_fails_is_not_retried_and_can_be_resumed(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.edits.send(3)
    job.write(broken="raise TypeError('no such thing')")
    failed = job.home.call("run", str(job.app))
    assert failed.returncode == 1
    assert "TypeError: no such thing" in failed.stderr
    assert "app.py:7" in failed.stderr
    assert "does not heal by retrying" in failed.stdout
    (attempt,) = job.home.json("attempts", JOB)
    assert (attempt["state"], attempt["failure_class"]) == ("FAILED", "code")
    assert json.loads((tmp_path / "hook.json").read_text())["class"] == "code"
    assert "Traceback" in job.home.call("logs", JOB).stdout
    job.write()
    job.go_elsewhere()
    with job.started("resume", JOB) as supervisor:
        job.wait_for_progress()
        second = job.home.call("run", str(job.app))
        assert second.returncode == 4
        assert (
            f"JOB_IS_RUNNING: job '{JOB}' is being run by process {supervisor}" in second.stderr
        )
        # The supervisor alone: its driver dies with it.
        driver = job.driver()
        end(supervisor)
        wait(lambda: not session_members(driver), "the driver's end")
    registry = tmp_path / "home" / "registry.db"
    # On a busy machine the driver itself may be silent for some seconds.
    with job.started("resume", JOB, HOLDFAST_HEARTBEAT_TIMEOUT="30 s") as supervisor:
        with sqlite3.connect(registry, isolation_level=None) as held:
            held.execute("BEGIN EXCLUSIVE")
            job.wait_for_progress()  # the registry is for people
        held.close()
        os.kill(supervisor, signal.SIGTERM)
        wait(lambda: job.attempt().state is RunState.SUSPENDED, "the end of the epoch")
    refused = job.home.call("stop", JOB)
    assert refused.returncode == 4
    assert "JOB_NOT_RUNNING" in refused.stderr
    with job.started("resume", JOB):
        job.wait_for_progress()
        assert job.call("cancel", JOB)["state"] == "CANCELED"
    spoil(registry)
    refused = job.home.call("run", str(job.app), "--available-now")
    assert refused.returncode == 6
    assert "REGISTRY_UNAVAILABLE" in refused.stderr
    for file in registry.parent.glob("registry.db*"):
        file.unlink()
    job.home = Home(tmp_path)
    # History is lost, state is not. What was cut short is done again, from an older epoch too.
    back = ("--from", "checkpoint:0", "--sink", "rewind")
    done = job.home.call("run", str(job.app), "--available-now", *back)
    assert done.returncode == 0, done.stderr
    assert "goes on after epoch 0 of timeline t0, as timeline t1" in done.stdout
    assert "attempt 1, started from checkpoint:0\n" in done.stdout
    assert job.is_exact()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_restarts_that_are_used_up_leave_a_job_that_can_be_resumed(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.edits.send(3)
    job.write(broken="raise OSError('the other side does not answer')")
    few = 'hf.FixedDelay(attempts=1, delay="0.1 s", also_retry=["code"])'
    text = job.app.read_text().replace('hf.FixedDelay(attempts=10, delay="0.1 s")', few)
    job.app.write_text(text)
    failed = job.home.call("run", str(job.app), "--available-now")
    assert failed.returncode == 1
    assert "restart 1 of 1, in 0.1 s" in failed.stdout
    assert "the other side does not answer" in failed.stderr
    states = [each["state"] for each in job.home.json("attempts", JOB)]
    assert states == ["FAILED", "FAILED"]
    kinds = [(each["attempt"], each["kind"]) for each in job.home.json("events", JOB)]
    lost = [(1, "attempt_failed"), (1, "restart"), (2, "attempt_failed"), (2, "failed")]
    assert kinds == [*lost, (2, "hook")]
    assert job.home.json("show", JOB)["state"] == "FAILED"
    job.write()
    job.go_elsewhere()
    resumed = job.home.call("resume", JOB)
    assert resumed.returncode == 0, resumed.stderr
    assert job.home.json("show", JOB)["state"] == "FINISHED"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert job.is_exact()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_job_is_taken_away_from_a_living_run(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.edits.send(3)
    with job.started("run", str(job.app)) as supervisor:
        job.wait_for_progress()
        driver = job.driver()
        job.edits.send(3)
        taken = job.home.call("resume", JOB, "--take-over", "--detach")
        assert taken.returncode == 0, taken.stderr
        wait(lambda: _is_zombie(supervisor), "the end of the first supervisor")
        assert not session_members(driver)
        job.wait_for_progress()
        assert job.call("stop", JOB)["state"] == "FINISHED"
    assert job.is_exact()
    attempts = job.home.json("attempts", JOB)
    assert [each["error"] and each["error"]["name"] for each in attempts] == ["FENCED", None]
    kinds = [event["kind"] for event in job.home.json("events", JOB)]
    assert kinds == ["take_over", "request"]
    assert not (tmp_path / "hook.json").exists()
    assert '"FENCED"' in (job.directory / "logs" / "supervisor.log").read_text()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_job_whose_state_is_deleted_on_cancel(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.write(checkpoint=', on_cancel="delete"')
    with job.started("run", str(job.app)):
        job.wait_for_progress()
        assert job.call("cancel", JOB)["state"] == "CANCELED"
    directory = JobDirectory(job.directory.parent, JOB)
    assert directory.load() is None
    assert directory.checkpoints() == set()
    assert job.home.json("events", JOB)[-1]["kind"] == "checkpoint_deleted"
    # The output stays, and is not mixed with that of a job which begins anew.
    rows = job.rows_out()
    again = job.home.call("run", str(job.app), "--available-now")
    assert again.returncode == 4, again.stdout
    assert "Fix: " in again.stderr
    assert job.rows_out() == rows


def test_a_detached_start_that_is_refused_says_so(tmp_path: Path) -> None:
    """Also while the supervisor is still there, because it calls its hook."""
    job = Supervised(tmp_path)
    job.app.write_text(job.app.read_text().replace('"tee", "hook.json"', '"sleep", "3"'))
    directory = JobDirectory(job.directory.parent, JOB)
    directory.save(directory.create(5, 64, "heap"))
    refused = job.home.call("run", str(job.app), "--detach")
    assert refused.returncode == 4, refused.stdout
    assert "PARALLELISM_DIFFERS" in refused.stderr
    events = [(event["attempt"], event["kind"]) for event in job.home.json("events", JOB)]
    assert events == [(1, "attempt_failed"), (1, "failed"), (1, "hook")]


def test_a_start_that_hangs_is_given_up(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    hangs = job.app.read_text().replace("edits = ", "import time; time.sleep(600); edits = ")
    job.app.write_text(hangs.replace("FixedDelay(attempts=10,", "FixedDelay(attempts=1,"))
    ended = job.home.call("run", str(job.app), HOLDFAST_START_TIMEOUT="4 s")
    assert ended.returncode != 0, ended.stdout
    assert "START_TIMEOUT" in ended.stderr
    attempts = job.home.json("attempts", JOB)
    assert [each["error"]["name"] for each in attempts] == ["START_TIMEOUT"] * 2


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_epoch_that_hangs_is_given_up(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.write(checkpoint=', timeout="25 s", tolerable_failures=1')
    job.edits.send(10)
    gate = tmp_path / "never"
    faults = f"epoch.start=gate:{gate}@2"
    with job.started("run", str(job.app), HOLDFAST_FAULTS=faults) as supervisor:
        wait(lambda: job.has_attempt(2), "the second attempt")
        assert job.home.json("attempts", JOB)[0]["error"]["name"] == "EPOCH_TIMEOUT"
        gate.touch()
        job.wait_for_progress()
        spoil(tmp_path / "home" / "registry.db")
        job.wait_for_progress()
        os.kill(supervisor, signal.SIGTERM)
        wait(lambda: _is_zombie(supervisor), "the supervisor's end")
    assert fired_points(job.home.faults_log)
    assert job.is_exact()


def _age(file: LeaseFile) -> float:
    lease = file.read()
    assert lease is not None
    return (datetime.now(UTC) - lease.renewed).total_seconds()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_driver_that_slept_through_its_replacement_commits_nothing(tmp_path: Path) -> None:
    home, edits = Home(tmp_path), Edits(tmp_path / "edits")
    edits.send(5)
    gate = tmp_path / "gate"
    with home.driver(JOB_FILE, faults=f"sink.before_commit_record=gate:{gate}") as zombie:
        wait(lambda: fired_points(home.faults_log), "the zombie's fault")
        os.kill(zombie.process.pid, signal.SIGSTOP)
        lease = LeaseFile(tmp_path / "home" / "jobs" / DEMO, DEMO)
        wait(lambda: _age(lease) > LEASE_SECONDS, "a lease that nobody renews")
        successor = subprocess.run(
            [*COMMAND, "run", str(JOB_FILE), "--available-now"],
            cwd=tmp_path,
            env=home.variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert successor.returncode == 0, successor.stderr
        assert "which is silent; watching it" in successor.stdout
        before = sorted(path.name for path in (tmp_path / "balances").iterdir())
        gate.touch()
        os.kill(zombie.process.pid, signal.SIGCONT)
        assert zombie.end() == 4
        assert "FENCED" in (tmp_path / "stderr.log").read_text()
    assert sorted(path.name for path in (tmp_path / "balances").iterdir()) == before
    assert half_visible(tmp_path / "balances") == ()
    assert prove(tmp_path / "edits", tmp_path / "balances", edits.sent).holds
