"""A sink that does not work: for a while, and for good while other jobs run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.drivers import Home
from e2e.test_supervision import end
from holdfast.checkpoint.lease import LeaseFile
from holdfast.control.registry import Registry
from holdfast.control.states import RunState
from holdfast.demo.proof import prove
from holdfast.drill.edits import Edits
from holdfast.drill.visible import half_visible
from holdfast.drill.waiting import wait
from holdfast.errors import HoldfastError
from holdfast.faults import fired_points
from holdfast.storage.processes import session_members

_PATIENCE = 360.0
"""Five starts, one after the other, on a machine that may be busy."""
APP = """
import holdfast as hf
from holdfast.demo.job import RunningBalance


def declare(name):
    job = hf.Job(
        name,
        checkpoint=hf.CheckpointConfig(interval="0.2 s"),
        restart=hf.FailureRate(max_failures={failures}, per="10 min", delay="{delay}"),
        parallelism=1,
        on_failed=["tee", f"{{name}}.hook"],
    )

    @job.pipeline
    def pipeline(flow):
        edits = flow.source("edits", hf.sources.FileLog(
            "edits", schema="edit bigint, user string, diff bigint", max_segments_per_epoch=2))
        balances = flow.key_by(edits, "user").process("balances", RunningBalance())
        flow.sink("out", balances, hf.sinks.Files(f"out/{{name}}", format="parquet"))

    return job


jobs = {names!r}
for each in jobs:
    globals()[each] = declare(each)
"""


class Jobs:
    """Some jobs of one file, which read the same input."""

    def __init__(self, path: Path, *names: str, failures: int, delay: str) -> None:
        self.home, self.names = Home(path), names
        self.edits = Edits(path / "edits", segment=20)
        self.app = path / "app.py"
        self.app.write_text(APP.format(names=names, failures=failures, delay=delay))

    @contextmanager
    def started(self, *options: str, **variables: str) -> Iterator[None]:
        """All of them, in the background; nothing of them is left afterwards."""
        pids = []
        try:
            for name in self.names:
                command = ("run", str(self.app), "--job", name, "--detach", "--json", *options)
                done = self.home.call(*command, **variables)
                assert done.returncode == 0, done.stderr
                pids.append(json.loads(done.stdout)["pid"])
            yield
        finally:
            for pid in pids:
                end(pid)
            for name in self.names:
                lease = LeaseFile(self.home.path / "home" / "jobs" / name, name).read()
                if lease is not None and lease.session is not None:
                    session = lease.session
                    wait(lambda session=session: not session_members(session), "the end")  # type: ignore[misc]

    def out(self, name: str) -> Path:
        return self.home.path / "out" / name

    def state(self, name: str) -> RunState:
        """Not by the command: a process for each look would take a core from the jobs."""
        with Registry(f"sqlite:///{self.home.path / 'home' / 'registry.db'}") as registry:
            return registry.job(name).state

    def has_ended(self, name: str) -> bool:
        """Whether nobody runs it: its supervisor has done all that it does."""
        lease = LeaseFile(self.home.path / "home" / "jobs" / name, name).read()
        return lease is not None and not lease.owner

    def is_exact(self, name: str) -> bool:
        if half_visible(self.out(name)):
            return False
        try:
            return prove(self.home.path / "edits", self.out(name), self.edits.sent).holds
        except HoldfastError:
            return False  # nothing is there yet

    def outcome(self, name: str) -> list[tuple[str, str | None]]:
        """How each attempt ended."""
        attempts = self.home.json("attempts", name)
        return [(each["state"], (each["error"] or {}).get("name")) for each in attempts]


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_sink_that_fails_four_times_and_heals(tmp_path: Path) -> None:
    job = Jobs(tmp_path, "wiki", failures=4, delay="0.1 s")
    job.edits.send(12)
    # Each in an attempt of its own, in its second epoch: something was committed before.
    points = [
        "before_staging",
        "before_commit_record",
        "after_commit_record",
        "mid_publication",
    ]
    faults = {f"sink.{point}": "enospc@2 once" for point in points}
    with job.started("--available-now", HOLDFAST_FAULTS=json.dumps(faults)):
        wait(lambda: job.has_ended("wiki"), "the end of the job", seconds=_PATIENCE)
    assert fired_points(job.home.faults_log) == [*faults]
    assert job.outcome("wiki") == [("FAILED", "DISK_FULL")] * 4 + [("FINISHED", None)]
    # Every attempt goes on where the one before it was, not from the beginning.
    begun = [each["began_from"] for each in job.home.json("attempts", "wiki")]
    assert begun[:2] == ["nothing", "epoch 0"]
    assert begun == sorted(set(begun), key=begun.index)
    assert job.is_exact("wiki")


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_sink_that_is_down_fails_its_own_job_only(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "first", "second", "third", failures=1, delay="3 s")
    jobs.edits.send(2)
    with jobs.started():
        for name in jobs.names:
            wait(lambda name=name: jobs.is_exact(name), "the first rows")  # type: ignore[misc]
        # The directory of one sink makes room for something that is none.
        jobs.out("second").rename(tmp_path / "away")
        jobs.out("second").write_text("not a directory")
        jobs.edits.send(2)
        wait(lambda: jobs.state("second") is RunState.RESTARTING, "the restart")
        wait(lambda: jobs.has_ended("second"), "the end")
        wait(lambda: jobs.is_exact("first") and jobs.is_exact("third"), "the others' rows")
        states = {name: jobs.state(name) for name in jobs.names}
        assert states == {
            "first": RunState.RUNNING, "second": RunState.FAILED, "third": RunState.RUNNING
        }  # fmt: skip
        require_told(jobs, "second")
        for name in ("first", "third"):
            (only,) = jobs.home.json("attempts", name)
            assert (only["error"], jobs.home.json("events", name)) == (None, [])
            assert not (tmp_path / f"{name}.hook").exists()


def require_told(jobs: Jobs, name: str) -> None:
    """The job says why, at once, in its history and to its hook."""
    events = jobs.home.json("events", name)
    kinds = ["attempt_failed", "restart", "attempt_failed", "failed", "hook"]
    assert [event["kind"] for event in events] == kinds
    outcome = jobs.outcome(name)
    assert outcome == [("FAILED", outcome[0][1])] * 2
    hook: dict[str, Any] = json.loads((jobs.home.path / f"{name}.hook").read_text())
    assert (hook["job"], hook["error"]) == (name, outcome[0][1])
    assert str(jobs.out(name)) in hook["message"]
    last = _time(jobs.home.json("attempts", name)[-1]["ended"])
    assert _time(events[-1]["at"]) - last < timedelta(seconds=5)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
