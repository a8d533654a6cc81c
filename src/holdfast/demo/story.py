"""The demo's order of events.

Edits begin to land in the log, and a driver starts. In the middle of an epoch it is killed.
The edits keep coming. The job is started again, goes on from its last checkpoint, and catches
up. When every edit is in a committed epoch it is asked to end, and the output is compared
with a computation that knows nothing of all this.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from holdfast.cli.output import count, seconds
from holdfast.control.registry import AttemptRow, Registry
from holdfast.demo.driver import DriverProcess
from holdfast.demo.place import JOB, JOB_FILE, DemoPlace, Progress
from holdfast.demo.producer import EditProducer, seconds_for
from holdfast.demo.proof import Proof, prove
from holdfast.demo.screen import Screen, Snapshot
from holdfast.errors import RunFailedError

KILL_AFTER_EPOCHS = 5
_TICK_SECONDS = 0.05
_AIM_SECONDS = 0.004
_STALL_SECONDS = 180.0


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
class DemoResult:
    directory: str
    edits: int
    seed: int
    seconds: float
    epochs: int
    kill: Kill
    attempts: tuple[AttemptRow, ...]
    proof: Proof

    def to_dict(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "proof"}
        return fields | {
            "ok": self.proof.holds,
            "job": JOB,
            "users": self.proof.users,
            "kill": asdict(self.kill),
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


def tell(place: DemoPlace, screen: Screen, *, edits: int, seed: int) -> DemoResult:
    """The whole story. Whatever happens, no process is left behind."""
    began = time.monotonic()
    with place.made_anew(), screen:
        producer = EditProducer(place.edits, edits=edits, seed=seed, seconds=seconds_for(edits))
        story = _Story(place, screen, producer, edits)
        try:
            with producer:
                kill = story.until_killed()
                story.until_done(kill)
        except KeyboardInterrupt:
            screen.event(f"interrupted; no process is left, {place.directory} stays as it is")
            raise
        screen.event("comparing with DuckDB, which reads the log and the Parquet files")
        proof = prove(place.edits, place.balances, edits)
    with Registry(place.registry_url) as registry:
        attempts = tuple(registry.attempts(registry.job(JOB).id))
    return DemoResult(
        directory=str(place.directory),
        edits=edits,
        seed=seed,
        seconds=round(time.monotonic() - began, 1),
        epochs=story.progress.epochs,
        kill=kill,
        attempts=attempts,
        proof=proof,
    )


class _Story:
    def __init__(
        self, place: DemoPlace, screen: Screen, producer: EditProducer, edits: int
    ) -> None:
        self.progress = Progress(place)
        self._place, self._screen, self._producer = place, screen, producer
        self._now = Snapshot(edits=edits)
        self._epoch_seconds: list[float] = []
        self._moved = time.monotonic()

    def until_killed(self) -> Kill:
        self._screen.event(
            f"{count(self._now.edits)} Wikipedia edits begin to land in {self._place.edits}"
        )
        command = ["holdfast", "run", str(JOB_FILE), "--home", str(self._place.directory)]
        driver = self._start(1, shlex.join(command))
        try:
            while self.progress.epochs < KILL_AFTER_EPOCHS:
                self._tick(driver)
            epoch = self._aim(driver)
            driver.kill()
        finally:
            driver.ensure_gone()
        self.progress.refresh()
        kill = Kill(
            pid=driver.pid,
            epoch=epoch,
            in_flight=self.progress.open_epoch() == epoch,
            epochs_before=self.progress.epochs,
            edits_before=self.progress.rows,
        )
        self._show(state="KILLED")
        self._producer.after_kill()
        self._screen.event(_kill_text(kill), style="bold red")
        return kill

    def until_done(self, kill: Kill) -> None:
        again = f", beginning with epoch {kill.epoch} once more" if kill.in_flight else ""
        driver = self._start(2, f"the same command; it goes on from its checkpoint{again}")
        before = self.progress.epochs
        try:
            while not (self._producer.finished and self.progress.rows >= self._now.edits):
                self._tick(driver)
                if self.progress.epochs > before:
                    self._producer.after_resume()
            self._screen.event("every edit is in a committed epoch: the driver is asked to end")
            self._show(state="STOPPING")
            for event in driver.stop():
                self._hear(driver, event)
        finally:
            driver.ensure_gone()
        self.progress.refresh()
        self._show()
        self._screen.event(f"attempt 2 has ended: {self._now.state}")

    def _start(self, attempt: int, how: str) -> DriverProcess:
        driver = DriverProcess(self._place, attempt)
        self._show(attempt=attempt, state="STARTING")
        self._screen.event(f"attempt {attempt} starts (pid {driver.pid})\n{how}")
        return driver

    def _aim(self, driver: DriverProcess) -> int:
        """Wait until an epoch has just begun, then for half the time that epochs take."""
        passed = self.progress.open_epoch()
        while True:
            self._tick(driver, pause=_AIM_SECONDS)
            epoch = self.progress.open_epoch()
            if epoch is not None and epoch != passed:
                time.sleep(min(self._epoch_seconds[-3:], default=0.0) / 2)
                if self.progress.open_epoch() == epoch:
                    return epoch
                passed = epoch

    def _tick(self, driver: DriverProcess, *, pause: float = _TICK_SECONDS) -> None:
        time.sleep(pause)
        for event in driver.events():
            self._hear(driver, event)
        driver.require_alive()
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

    def _hear(self, driver: DriverProcess, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "started":
                self._show(state="RUNNING")
                how = "resumed from its last checkpoint" if event["resumed"] else "began anew"
                took = seconds(event.get("timings", {}).get("query"))
                guarantee = str(event["guarantee"]).replace("_", " ")
                self._screen.event(
                    f"attempt {driver.number} runs after {took}: it {how}; {guarantee}, "
                    "end to end"
                )
            case "epoch":
                self._epoch_seconds.append(_seconds_of(event))
                users = sum(size["rows"] for size in event["state"].values())
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
