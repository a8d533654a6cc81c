"""Savepoints of a job that runs and is fed meanwhile: each is one whole epoch, and exact."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.spark_files import committed_batches
from holdfast.clock import SystemClock
from holdfast.control.registry import Registry
from holdfast.control.savepoints import take_savepoint, write_state
from holdfast.errors import ConflictError
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.store import Progress, Savepoint, silent, verify
from holdfast.storage.filelog import segments
from spark.processes import RunningTotal
from spark.test_going_back import written
from spark.test_resume import ROWS, SCHEMA
from spark.workplace import Pipeline, Workplace, running_totals

SIZE = 20
"""Records of a segment, and so of an epoch."""
PATIENCE_SECONDS = 120.0


def totals(place: Workplace) -> Pipeline:
    def pipeline(flow: hf.Flow) -> None:
        log = hf.sources.FileLog(place.path / "log", SCHEMA, max_segments_per_epoch=1)
        balances = flow.key_by(flow.source("edits", log), "user").process("sum", RunningTotal())
        flow.sink("out", balances, hf.sinks.Files(place.path / "out", "json"))

    return pipeline


@dataclass
class LiveJob:
    """A job that runs in a thread, and a producer that writes while it does.

    The producer goes on until `segments` are written, and the job ends after as many epochs.
    Until then it stays a little ahead of the epochs that the test has asked for.
    """

    place: Workplace
    segments: int
    ahead: int
    """Segments beyond the epoch that is waited for: the job goes on meanwhile."""
    wanted: int = 0
    """The epoch that the test waits for."""
    job: Future[Any] = field(init=False)

    @property
    def checkpoint(self) -> Path:
        return JobDirectory(self.place.runtime().storage, "job").path / "checkpoint"

    def newest(self) -> int:
        """The epoch that was committed last; -1: none."""
        return max(committed_batches(self.checkpoint), default=-1)

    def is_inside_an_epoch(self) -> bool:
        begun = [int(file.name) for file in (self.checkpoint / "offsets").glob("[0-9]*")]
        return max(begun) > self.newest()

    def go_on_to(self, epoch: int) -> None:
        """Wait until it is committed. Epochs after it come as well, but not the last one."""
        assert epoch + self.ahead < self.segments, "more segments are needed"
        self.wanted = max(self.wanted, epoch)
        self.wait_for(lambda: self.newest() >= epoch)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "this has never come"
            if self.job.done():
                raise AssertionError(f"the job has ended: {self.job.result()}")
            time.sleep(0.01)

    def take(self, progress: Progress = silent) -> Savepoint:
        with Registry(self.place.registry_url) as registry:
            savepoint = take_savepoint(
                registry,
                registry.job("job"),
                self.place.savepoints,
                SystemClock(),
                progress=progress,
            )
        assert not self.job.done()
        return savepoint

    def produce(self, log: hf.FileLogProducer) -> None:
        with log:
            for number in range(self.segments):
                self.wait_for(lambda number=number: number <= self.wanted + self.ahead)  # type: ignore[misc]
                for user, diff in ROWS[number * SIZE : (number + 1) * SIZE]:
                    log.send({"user": user, "diff": diff})
                log.flush()


@contextmanager
def live(place: Workplace, segments: int, ahead: int, **checkpoint: Any) -> Iterator[LiveJob]:
    running = LiveJob(place, segments, ahead)
    config = {"interval": "20 ms", **checkpoint}
    log = hf.FileLogProducer(place.path / "log", producer_id="p")
    with ThreadPoolExecutor(2) as pool:
        running.job = pool.submit(
            place.run, totals(place), max_epochs=segments, checkpoint=config
        )
        producer = pool.submit(running.produce, log)
        try:
            running.go_on_to(0)
            yield running
        finally:
            # Also after a failure: a thread cannot be killed, but this job comes to an end.
            running.wanted = segments
        producer.result(PATIENCE_SECONDS)
        running.job.result(PATIENCE_SECONDS)


def seen(savepoint: Savepoint) -> set[str]:
    """The names of the segments that its source had read, as the files in it say."""
    [log] = (savepoint.checkpoint / "sources").iterdir()
    entries = [
        json.loads(line)
        for file in log.glob("[0-9]*")
        for line in file.read_text().splitlines()[1:]
    ]
    return {Path(entry["path"]).name for entry in entries}


def sums(log: Path, names: set[str]) -> dict[str, int]:
    """The truth: all records of these segments, added up."""
    found: Counter[str] = Counter()
    for name in names:
        for line in (log / name).read_text().splitlines():
            record = json.loads(line)
            found[record["user"]] += record["diff"]
    return dict(found)


def stored(place: Workplace, savepoint: Savepoint) -> dict[str, int]:
    """The state that it holds."""
    state = CanonicalState(place.path / "state" / savepoint.manifest.id)
    write_state(savepoint, state, place.runtime(), silent)
    query = f"select user, total from read_parquet('{state.rows('sum')}/*.parquet')"
    rows = duckdb.connect().execute(query).fetchall()
    assert len(rows) == len(dict(rows))
    return dict(rows)


def check_files(place: Workplace, savepoint: Savepoint) -> None:
    """Every byte as it was written, and the input read up to its own epoch, no more."""
    verify(savepoint)
    names = [path.name for path in segments(place.path / "log")]
    assert seen(savepoint) == set(names[: savepoint.manifest.epoch + 1])


def check_state(place: Workplace, savepoint: Savepoint) -> None:
    assert stored(place, savepoint) == sums(place.path / "log", seen(savepoint))


def spread(savepoints: list[Savepoint], count: int) -> list[Savepoint]:
    """So many of them with different epochs, from the first to the last."""
    by_epoch = list({each.manifest.epoch: each for each in savepoints}.values())
    places = [at * (len(by_epoch) - 1) // (count - 1) for at in range(count)]
    assert len(set(places)) == count
    return [by_epoch[at] for at in places]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("count", "epochs"), [(45, 14), pytest.param(100, 22, marks=pytest.mark.long)]
)
def test_many_of_a_running_job(place: Workplace, count: int, epochs: int) -> None:
    ahead = 3
    taken, inside = [], 0
    with live(place, epochs, ahead) as job:
        for number in range(count):
            job.go_on_to(number * (epochs - ahead - 1) // count)
            inside += job.is_inside_an_epoch()
            taken.append(job.take())
    truth = Counter(running_totals(ROWS[: epochs * SIZE]))
    assert written(place.path / "out") == truth
    assert len({each.path for each in taken}) == count
    numbers = [each.manifest.epoch for each in taken]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > epochs / 2
    assert inside > count / 20, "the job did nothing while they were taken"
    for savepoint in taken:
        check_files(place, savepoint)
    for savepoint in taken if count == 100 else spread(taken, 5):
        check_state(place, savepoint)
    # The newest first: what an older one takes back is needed by a newer one.
    for savepoint in reversed(spread(taken, 7)[-3:]):
        epoch = savepoint.manifest.epoch
        plan = place.restore(totals(place), savepoint.manifest.id, "rewind")
        assert (plan.batch, plan.sinks[0].epochs) == (epoch, epochs - 1 - epoch)
        assert written(place.path / "out") == truth


@dataclass
class Overtaken:
    """Watches a savepoint being taken. In its first attempts, when the first file is linked, it
    waits until the job has removed one of the others."""

    job: LiveJob
    times: int
    attempts: int = 0
    epochs: list[int] = field(default_factory=list)
    """The newest epoch when each attempt began."""

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != "copy" or done != 1:
            return
        self.attempts += 1
        newest = self.job.newest()
        self.epochs.append(newest)
        if self.attempts <= self.times:
            # What is being taken is this epoch or one before it; each needs the entry before.
            needed = self.job.checkpoint / "offsets" / str(newest - 1)
            self.job.go_on_to(newest + 2)
            self.job.wait_for(lambda: not needed.exists())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_files_that_are_removed_meanwhile(place: Workplace) -> None:
    # Enough if the job is as far ahead as it can be, each time that it is waited for.
    epochs = 56
    taken, raced = [], []
    with live(place, epochs, ahead=1, retained=2) as job:
        for number in range(6):
            job.go_on_to(job.newest() + 1)
            watch = Overtaken(job, times=number % 2)
            savepoint = job.take(watch)
            taken.append(savepoint)
            assert watch.attempts == 1 + watch.times
            assert savepoint.manifest.epoch >= watch.epochs[-1] - 1
            if watch.times:
                raced.append(savepoint)
                assert savepoint.manifest.epoch > watch.epochs[0]
        watch = Overtaken(job, times=1_000)
        with pytest.raises(ConflictError) as caught:
            job.take(watch)
        assert caught.value.name == "SAVEPOINT_OVERTAKEN"
        assert watch.attempts == 10
        assert len(set(watch.epochs)) == 10
        # Nothing is left of it, and the next one is as good as any.
        assert place.savepoints.leftovers() == []
        taken.append(job.take())
        assert [each.path for each in place.savepoints.all()] == [each.path for each in taken]
    assert len(raced) == 3
    for savepoint in taken:
        check_files(place, savepoint)
    for savepoint in [*raced, taken[0], taken[-1]]:
        check_state(place, savepoint)
    assert written(place.path / "out") == Counter(running_totals(ROWS[: epochs * SIZE]))
