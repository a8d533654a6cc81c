"""The demo's order of events.

Edits begin to land in the log, and a job starts under supervision. In the middle of an epoch
its driver is killed. The edits keep coming. The job restarts by itself, goes on from its last
checkpoint, and catches up. It is stopped with a savepoint, and its second version goes on from
there, with another parallelism. Then it is rolled back to that savepoint, together with its
output, and does the same again: not a key may differ. At last the output is compared with a
computation that knows nothing of all this.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.cli.output import count, seconds, size
from holdfast.control.registry import AttemptRow, Registry
from holdfast.demo.place import JOB, THIRD, DemoPlace
from holdfast.demo.producer import EditProducer, seconds_for
from holdfast.demo.proof import Check, Proof
from holdfast.demo.screen import Screen, Snapshot
from holdfast.demo.stage import Stage
from holdfast.demo.supervised import SupervisedJob, call
from holdfast.errors import RunFailedError

KILL_AFTER_EPOCHS = 5
EPOCHS_AFTER_RESTART = 3
_TICK_SECONDS = 0.05
_AIM_SECONDS = 0.004
_STALL_SECONDS = 180.0
_SAME_AFTER_ROLLBACK = "users whose balance is another one after the rollback"


@dataclass(frozen=True, kw_only=True)
class Kill:
    """What the kill met; looked up when the driver was gone."""

    pid: int
    epoch: int
    in_flight: bool
    """The input of `epoch` was fixed, but it was not committed."""
    epochs_before: int
    edits_before: int


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How many users' balances differ between two savepoints."""

    added: int
    removed: int
    changed: int

    @property
    def total(self) -> int:
        return self.added + self.removed + self.changed


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    directory: str
    edits: int
    seed: int
    seconds: float
    epochs: int
    kill: Kill
    savepoint: str
    since_savepoint: Changes
    after_rollback: Changes
    attempts: tuple[AttemptRow, ...]
    proof: Proof

    def to_dict(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "proof"}
        return fields | {
            "ok": self.proof.holds,
            "job": JOB,
            "users": self.proof.users,
            "kill": asdict(self.kill),
            "since_savepoint": asdict(self.since_savepoint),
            "after_rollback": asdict(self.after_rollback),
            "attempts": [
                {
                    "number": row.number,
                    "state": row.state,
                    "error": row.error.name if row.error else None,
                    "started": row.started,
                    "ended": row.ended,
                }
                for row in self.attempts
            ],
            "balances": [asdict(row) | {"equal": row.equal} for row in self.proof.balances],
            "checks": [asdict(row) | {"equal": row.equal} for row in self.proof.checks],
        }


def tell(
    place: DemoPlace, stage: Stage, screen: Screen, *, edits: int, seed: int
) -> DemoResult:
    """The whole story. Whatever happens, no process is left behind."""
    began = time.monotonic()
    with place.made_anew(), screen, stage.prepared():
        producer = EditProducer(
            stage.edit_log, edits=edits, seed=seed, seconds=seconds_for(edits)
        )
        story = _Story(place, stage, screen, producer, edits)
        try:
            with producer:
                kill, savepoint, since, again = story.run()
        except KeyboardInterrupt:
            screen.event(f"interrupted; no process is left, {place.directory} stays as it is")
            raise
        screen.event(f"comparing with DuckDB, which reads {stage.reader}")
        proof = stage.prove(edits)
        same = Check(what=_SAME_AFTER_ROLLBACK, expected=0, found=again.total)
        proof = replace(proof, checks=(*proof.checks, same))
    with Registry(place.registry_url) as registry:
        attempts = tuple(registry.attempts(registry.job(JOB).id))
    return DemoResult(
        directory=str(place.directory),
        edits=edits,
        seed=seed,
        seconds=round(time.monotonic() - began, 1),
        epochs=story.progress.epochs,
        kill=kill,
        savepoint=savepoint,
        since_savepoint=since,
        after_rollback=again,
        attempts=attempts,
        proof=proof,
    )


class _Story:
    def __init__(
        self,
        place: DemoPlace,
        stage: Stage,
        screen: Screen,
        producer: EditProducer,
        edits: int,
    ) -> None:
        self.progress = stage.progress
        self._place, self._stage, self._screen, self._producer = place, stage, screen, producer
        self._now = Snapshot(edits=edits)
        self._epoch_seconds: list[float] = []
        self._moved = time.monotonic()

    def run(self) -> tuple[Kill, str, Changes, Changes]:
        """What the kill met, the savepoint, what has changed since it, and what the rollback
        has made different."""
        self._screen.event(
            f"{count(self._now.edits)} Wikipedia edits begin to land in {self._stage.source}"
        )
        with self._job("a supervisor starts the job", self._stage.job_file) as job:
            kill = self._until_killed(job)
            self._until_restarted(job)
            savepoint = self._stop(job, "--savepoint")["savepoint"]
        self.progress.at_savepoint = self.progress.rows
        self._screen.event(
            f"savepoint {savepoint['id']} of epoch {savepoint['epoch']}: "
            f"{count(savepoint['keys'])} users, {size(savepoint['bytes'])}",
            style="bold cyan",
        )
        told = "version 2 goes on from it: kilobytes too, on 3 partitions instead of 2"
        second = self._stage.second_version
        with self._job(told, second, "--from", savepoint["id"]) as job:
            self._until_done(job)
            end = self._stop(job, "--savepoint")["savepoint"]["id"]
        since = self._compare("what has changed since the savepoint", savepoint["id"], end)
        told = "a rollback: back to the savepoint, together with the output, and all that again"
        options = ("--from", savepoint["id"], "--sink", self._stage.rollback_sink)
        with self._job(told, second, *options) as job:
            while not (self.progress.is_in(THIRD) and self.progress.rows >= self._now.edits):
                self._tick(job)
            again = self._stop(job, "--savepoint")["savepoint"]["id"]
        different = self._compare("the two ends", end, again)
        return kill, savepoint["id"], since, different

    def _compare(self, what: str, before: str, after: str) -> Changes:
        command = ("state", "diff", before, after)
        self._screen.event(f"{what}\nholdfast {shlex.join(command)}")
        # Exit code 1: there are differences.
        [found] = call(self._place, *command, "--limit", "1", expected=(0, 1))
        changes = Changes(
            added=found["added"], removed=found["removed"], changed=found["changed"]
        )
        self._screen.event(
            f"{count(changes.added)} users are new, {count(changes.removed)} gone, "
            f"{count(changes.changed)} have another balance",
            style="bold cyan",
        )
        return changes

    @contextmanager
    def _job(self, told: str, app: Path, *options: str) -> Iterator[SupervisedJob]:
        home = str(self._place.directory)
        command = ["holdfast", "run", str(app), "--home", home, *options]
        job = SupervisedJob(self._place, app, *options)
        try:
            self._show(state="STARTING")
            self._screen.event(f"{told}\n{shlex.join(command)}")
            yield job
        finally:
            job.ensure_gone()
        self.progress.refresh()
        self._show()

    def _stop(self, job: SupervisedJob, *options: str) -> Any:
        self._show(state="STOPPING")
        command = ("stop", JOB, *options)
        self._screen.event(f"it is asked to end\nholdfast {shlex.join(command)}")
        said = call(self._place, *command)
        for event in job.wait_for_end():
            self._hear(event)
        return said

    def _until_killed(self, job: SupervisedJob) -> Kill:
        while self.progress.epochs < KILL_AFTER_EPOCHS:
            self._tick(job)
        epoch = self._aim(job)
        pid = job.kill_driver()
        self.progress.refresh()
        kill = Kill(
            pid=pid,
            epoch=epoch,
            in_flight=self.progress.open_epoch() == epoch,
            epochs_before=self.progress.epochs,
            edits_before=self.progress.rows,
        )
        self._show(state="KILLED")
        self._producer.after_kill()
        self._screen.event(_kill_text(kill), style="bold red")
        return kill

    def _until_restarted(self, job: SupervisedJob) -> None:
        before = self.progress.epochs
        while self.progress.epochs < before + EPOCHS_AFTER_RESTART:
            self._tick(job)
        self._producer.after_restart()

    def _until_done(self, job: SupervisedJob) -> None:
        before = self.progress.epochs
        while not (self._producer.finished and self.progress.rows >= self._now.edits):
            self._tick(job)
            # The version before may have left nothing to do: then no epoch comes by itself.
            idle = (
                self._now.state == "RUNNING" and self.progress.rows >= self._producer.produced
            )
            if self.progress.epochs > before or idle:
                self._producer.after_upgrade()
        self._screen.event("every edit is in a committed epoch")

    def _aim(self, job: SupervisedJob) -> int:
        """Wait until an epoch has just begun, then for half the time that epochs take."""
        passed = self.progress.open_epoch()
        while True:
            self._tick(job, pause=_AIM_SECONDS)
            epoch = self.progress.open_epoch()
            if epoch is not None and epoch != passed:
                time.sleep(min(self._epoch_seconds[-3:], default=0.0) / 2)
                if self.progress.open_epoch() == epoch:
                    return epoch
                passed = epoch

    def _tick(self, job: SupervisedJob, *, pause: float = _TICK_SECONDS) -> None:
        time.sleep(pause)
        for event in job.events():
            self._hear(event)
        job.require_alive()
        if self._producer.error is not None:
            raise self._producer.error
        self.progress.refresh()
        self._show()
        if time.monotonic() - self._moved > _STALL_SECONDS:
            raise RunFailedError(
                "DEMO_STALLED",
                f"nothing was produced or committed for {_STALL_SECONDS:g} s, with "
                f"{count(self.progress.rows)} of {count(self._now.edits)} edits committed.",
                fix=f"look into {self._place.log} and {self._place.job.logs}.",
            )

    def _hear(self, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "started":
                self._show(state="RUNNING", attempt=event["attempt"])
                how = "resumed from its last checkpoint" if event["resumed"] else "began anew"
                took = seconds(event.get("timings", {}).get("query"))
                guarantee = str(event["guarantee"]).replace("_", " ")
                self._screen.event(
                    f"attempt {event['attempt']} runs after {took}: it {how}; {guarantee}, "
                    "end to end"
                )
            case "restore":
                self._screen.event(f"the supervisor: {event['text']}")
            case "restart":
                self._show(state="RESTARTING")
                self._screen.event(f"the supervisor: {event['text']}")
            case "epoch":
                self._epoch_seconds.append(_seconds_of(event))
                users = sum(each["rows"] for each in event["state"].values())
                self._show(users=users)
            case "ended":
                self._show(state=event["state"])

    def _show(self, **changes: Any) -> None:
        now = replace(
            self._now,
            produced=self._producer.produced,
            committed=self.progress.rows,
            epochs=self.progress.epochs,
            open_epoch=self.progress.open_epoch(),
            **changes,
        )
        if now != self._now:
            self._moved = time.monotonic()
        self._now = now
        self._screen.update(now)


def _kill_text(kill: Kill) -> str:
    if kill.in_flight:
        moment = f"in the middle of epoch {kill.epoch}: its input is fixed, its output is not"
    else:  # it was faster than we were
        moment = f"at the very end of epoch {kill.epoch}"
    return (
        f"KILL -9, {moment}\nprocess {kill.pid}, its JVM and workers are gone; committed are "
        f"{count(kill.epochs_before)} epochs with {count(kill.edits_before)} edits"
    )


def _seconds_of(event: dict[str, Any]) -> float:
    began, ended = event["started"], event["ended"]
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
