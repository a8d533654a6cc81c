"""The sink's commit protocol against a model: a dict from (timeline, epoch) to its rows.

A run is a list of steps: attempts at epochs, each crashing at one of the fault points or not,
repeated attempts, restarts, abandoned staging, a switch of timeline. The model applies one
rule: an epoch belongs to the output from the moment its commit record exists. At every moment
what a reader sees is a subset of the model, in whole files; after each recovery it is equal.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.faults import armed, fired_points
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile, committed_files

AFTER_DECISION = ("sink.after_commit_record", "sink.mid_publication", "sink.after_publication")
POINTS = ("sink.before_staging", "sink.before_commit_record", *AFTER_DECISION)
EPOCHS = st.integers(0, 6)
TIMELINES = st.sampled_from(["main", "main-2"])
FILES = st.lists(st.integers(0, 3), max_size=4)
"""Rows per staged file."""


class SinkMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-sink-"))
        self.out = self.directory / "out"
        self.faults = self.directory / "faults"
        self.model: dict[tuple[str, int], list[str]] = {}
        self.unpublished: set[tuple[str, int]] = set()
        self.attempts = 0
        self.timeline = "main"
        self.reopen(self.timeline)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @rule(timeline=TIMELINES)
    def reopen(self, timeline: str) -> None:
        """A new process after a crash or a stop."""
        completed = self.recover(timeline)
        assert completed == self.unpublished
        self.unpublished.clear()

    def recover(self, timeline: str) -> set[tuple[str, int]]:
        self.timeline = timeline
        self.log = FileSinkLog(
            self.out,
            job_id="id",
            job_name="job",
            sink_uid="sink",
            file_format="jsonl",
            timeline=timeline,
        )
        recovery = self.log.open()
        assert not list(self.out.glob("_holdfast/job/sink/staging/*"))
        self.check_equal()
        return {(record.timeline, record.epoch) for record in recovery.completed}

    @rule(timeline=TIMELINES, point=st.sampled_from(AFTER_DECISION[1:]))
    def crash_in_recovery_then_reopen(self, timeline: str, point: str) -> None:
        before = len(fired_points(self.faults))
        with armed(f"{point}=raise", log=self.faults):
            try:
                assert self.recover(timeline) == self.unpublished
            except RuntimeError:
                assert len(fired_points(self.faults)) == before + 1
        # Some epochs may have been completed before the crash; `recover` misses none.
        assert self.recover(timeline) <= self.unpublished
        self.unpublished.clear()

    @rule(epoch=EPOCHS, files=FILES)
    def attempt(self, epoch: int, files: list[int]) -> None:
        staging = self.log.begin(epoch)
        record = self.log.commit(epoch, staging, self.stage(staging, epoch, files))
        key = (self.timeline, epoch)
        assert record.already == (key in self.model)
        assert not staging.exists()
        self.decided(key)
        self.unpublished.discard(key)
        assert record.rows == len(self.model[key])

    @rule(epoch=EPOCHS, files=FILES, point=st.sampled_from(POINTS))
    def crash(self, epoch: int, files: list[int], point: str) -> None:
        key, before = (self.timeline, epoch), len(fired_points(self.faults))
        already = key in self.model
        with armed(f"{point}=raise", log=self.faults):
            try:
                staging = self.log.begin(epoch)
                self.log.commit(epoch, staging, self.stage(staging, epoch, files))
            except RuntimeError:
                assert len(fired_points(self.faults)) == before + 1
                if point in AFTER_DECISION:
                    if not already:
                        self.decided(key)
                    self.unpublished.add(key)
            else:
                # Not reached: nothing to publish, or the epoch was committed before.
                assert already or point == "sink.mid_publication"
                self.decided(key)
                self.unpublished.discard(key)

    @rule(epoch=EPOCHS, files=FILES)
    def abandon(self, epoch: int, files: list[int]) -> None:
        """An attempt that dies while it writes, with a half-written file."""
        staging = self.log.begin(epoch)
        self.stage(staging, epoch, files)
        (staging / "half").write_text("half a ro")

    @rule(epoch=EPOCHS, one=FILES, two=FILES)
    def two_attempts_at_once(self, epoch: int, one: list[int], two: list[int]) -> None:
        first, second = self.log.begin(epoch), self.log.begin(epoch)
        second_files = self.stage(second, epoch, two)
        first_files = self.stage(first, epoch, one)
        already = (self.timeline, epoch) in self.model
        assert self.log.commit(epoch, first, first_files).already == already
        self.decided((self.timeline, epoch))
        assert self.log.commit(epoch, second, second_files).already
        self.unpublished.discard((self.timeline, epoch))

    @rule(epoch=EPOCHS)
    def ask(self, epoch: int) -> None:
        assert self.log.is_committed(epoch) == ((self.timeline, epoch) in self.model)

    @invariant()
    def epochs_are_those_of_the_model(self) -> None:
        mine = sorted(epoch for timeline, epoch in self.model if timeline == self.timeline)
        assert self.log.committed_epochs() == mine

    @invariant()
    def visible_is_committed_and_whole(self) -> None:
        allowed = {row for rows in self.model.values() for row in rows}
        rows = self.visible_rows()
        assert len(rows) == len(set(rows))
        assert set(rows) <= allowed
        for key in self.model.keys() - self.unpublished:
            assert set(self.model[key]) <= set(rows)

    def check_equal(self) -> None:
        assert self.visible_rows() == sorted(
            row for rows in self.model.values() for row in rows
        )

    def stage(self, staging: Path, epoch: int, files: list[int]) -> list[StagedFile]:
        self.attempts += 1
        staged = []
        self.last_rows: list[str] = []
        for number, count in enumerate(files):
            name = f"{self.timeline}/{epoch}/{self.attempts}/{number}"
            rows = [f"{name}/{row}" for row in range(count)]
            self.last_rows += rows
            path = staging / f"task-{number}"
            path.write_text("".join(f"{row}\n" for row in rows))
            size = path.stat().st_size
            staged.append(StagedFile(name=path.name, rows=count, bytes=size))
        return staged

    def decided(self, key: tuple[str, int]) -> None:
        """The last staged attempt has won its epoch, unless an earlier one has."""
        self.model.setdefault(key, self.last_rows)

    def visible_rows(self) -> list[str]:
        """By plain listing, which must agree with `committed_files`."""
        listed = sorted(path for path in self.out.iterdir() if path.name[0] not in "._")
        assert listed == sorted(committed_files(self.out))
        rows = []
        for path in listed:
            text = path.read_text()
            assert text.endswith("\n")
            rows += text.splitlines()
        return sorted(rows)


TestSinkMachine = SinkMachine.TestCase
TestSinkMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
