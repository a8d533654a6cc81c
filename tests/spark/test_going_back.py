"""A job that is started from an older epoch of its own goes on as if it had been there."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Literal

import duckdb
import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.spark_files import batch_files, committed_batches
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.control.checkup import check_up
from holdfast.control.registry import Registry
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    NotFoundError,
    RunFailedError,
    StateMismatchError,
)
from holdfast.faults import armed
from spark.processes import RunningTotal
from spark.test_resume import ROWS, SCHEMA, feed
from spark.workplace import Pipeline, Workplace, running_totals

PARTS = 5
SIZE = 60
EDITS = ROWS[: PARTS * SIZE]


def totals(place: Workplace, factor: int = 1) -> Pipeline:
    """One segment per epoch. Another factor is other code."""

    def pipeline(flow: hf.Flow) -> None:
        log = hf.sources.FileLog(place.path / "log", SCHEMA, max_segments_per_epoch=1)
        scaled = flow.source("edits", log).selectExpr("user", f"diff * {factor} as diff")
        balances = flow.key_by(scaled, "user").process("sum", RunningTotal())
        flow.sink("out", balances, hf.sinks.Files(place.path / "out", "json"))

    return pipeline


def filled(place: Workplace) -> JobDirectory:
    """A job that has seen all parts, in an epoch each."""
    for part in range(PARTS):
        feed(place.path / "log", EDITS[part * SIZE : (part + 1) * SIZE], f"p{part:02d}")
    place.run(totals(place))
    assert len(place.epochs()) == PARTS
    return JobDirectory(place.runtime().storage, "job")


def go_back(
    place: Workplace, origin: str, choice: SinkChoice | None = None, factor: int = 1
) -> RestorePlan:
    return place.restore(totals(place, factor), origin, choice)


def written(path: Path) -> Counter[tuple[str, int]]:
    query = f"select user, total from read_json('{path}/*.jsonl')"
    return Counter(duckdb.connect().execute(query).fetchall())


def changed_after(part: int, factor: int) -> list[tuple[str, int]]:
    """What a job sees whose code changed after so many parts."""
    at = part * SIZE
    return EDITS[:at] + [(user, diff * factor) for user, diff in EDITS[at:]]


@pytest.mark.parametrize("backend", ["heap", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_rewound_output_equals_a_run_that_never_erred(
    tmp_path: Path, backend: Literal["heap", "rocksdb"]
) -> None:
    place = Workplace(tmp_path, backend)
    directory = filled(place)
    first = directory.checkpoint
    plan = go_back(place, "checkpoint:1", "rewind", factor=3)
    assert (plan.batch, plan.timeline.name, plan.timeline.parent) == (1, "t1", "t0")
    assert [(each.uid, each.epochs, each.rows) for each in plan.sinks] == [("out", 3, 180)]
    assert place.began_from() == ["nothing", "checkpoint:1"]
    truth = running_totals(changed_after(2, 3))
    assert written(place.path / "out") == Counter(truth)
    # The old checkpoint is still there: to go back on going back.
    assert directory.checkpoint.name.startswith("checkpoint.t1.")
    assert committed_batches(first) == [0, 1, 2, 3, 4]
    # From the new timeline's own beginning, and once more: only the last two are kept.
    go_back(place, "checkpoint:1", "rewind")
    assert written(place.path / "out") == Counter(running_totals(EDITS))
    assert not first.exists()
    identity = directory.load()
    assert identity is not None
    assert [each.name for each in identity.timelines] == ["t0", "t1", "t2"]
    assert identity.timelines[2].parent == "t1"
    # The newest epoch: nothing lies beyond it, and nothing has to be said.
    newest = place.take()
    assert go_back(place, "checkpoint:4").timeline.name == "t3"
    # Back, and forward again to where the output has since been removed: that would be a hole.
    go_back(place, "checkpoint:4", "rewind")
    go_back(place, newest.manifest.id, "rewind")
    for name in directory.checkpoints() - {directory.checkpoint.name}:
        shutil.rmtree(directory.path / name)
    earlier = place.take()
    feed(place.path / "log", [("more", 1)], "p00")
    place.run(totals(place))
    later = place.take()
    go_back(place, earlier.manifest.id, "rewind")
    with pytest.raises(ConflictError, match="would leave a hole") as hole:
        go_back(place, later.manifest.id, "rewind")
    assert hole.value.name == "OUTPUT_WAS_REMOVED"
    go_back(place, later.manifest.id, "new")


def test_output_beyond_is_kept_or_left_behind_as_told(place: Workplace) -> None:
    directory = filled(place)
    with pytest.raises(ConflictError, match="2 epochs with 120 rows") as caught:
        go_back(place, "checkpoint:2")
    assert caught.value.name == "SINK_CHOICE_NEEDED"
    assert directory.checkpoint == directory.path / "checkpoint", "nothing has changed"
    truth = running_totals(EDITS)
    go_back(place, "checkpoint:2", "new")
    assert written(place.path / "out") == Counter(truth)
    assert written(place.path / "out.t1") == Counter(truth[3 * SIZE :])
    go_back(place, "checkpoint:3", "keep")
    assert written(place.path / "out.t1") == Counter(truth[3 * SIZE :] + truth[4 * SIZE :])
    # What was kept still lies beyond, and so has to be decided again.
    with pytest.raises(ConflictError, match="1 epoch with 60 rows"):
        go_back(place, "checkpoint:4")


def test_a_source_may_begin_anew_while_the_state_stays(place: Workplace) -> None:
    filled(place)
    last = f"checkpoint:{PARTS - 1}"
    place.restore(totals(place), last, reset_sources=("edits",))
    assert written(place.path / "out") == Counter(running_totals(EDITS + EDITS))
    with pytest.raises(StateMismatchError, match="SOURCE_NOT_RESET"):
        place.restore(totals(place), last, "keep", reset_sources=("other",))


def test_a_restore_that_is_cut_short_can_be_repeated(place: Workplace) -> None:
    filled(place)
    for point in ("copy.linked", "restore.copied", "restore.switched"):
        with armed(f"{point}=raise"), pytest.raises(RunFailedError, match=point):
            go_back(place, "checkpoint:3", "rewind")
        # Before the switch the job is as it was, after it it has gone back; both can go on.
        place.run(totals(place))
        assert written(place.path / "out") == Counter(running_totals(EDITS))
    go_back(place, "checkpoint:3", "rewind")
    assert written(place.path / "out") == Counter(running_totals(EDITS))


def test_what_cannot_be_gone_back_to_is_refused_by_name(place: Workplace) -> None:
    directory = filled(place)
    with pytest.raises(NotFoundError, match="it has 0 to 4") as gone:
        go_back(place, "checkpoint:99", "keep")
    assert gone.value.name == "CHECKPOINT_NOT_RETAINED"
    with pytest.raises(NotFoundError, match="yesterday") as nonsense:
        go_back(place, "yesterday", "keep")
    assert nonsense.value.name == "SAVEPOINT_NOT_FOUND"
    needed = batch_files(directory.checkpoint, 2).linked
    damaged = next(name for name in needed if name.endswith(".changelog"))
    (directory.checkpoint / damaged).unlink()
    with pytest.raises(CorruptionError, match="is missing") as missing:
        go_back(place, "checkpoint:2", "keep")
    assert missing.value.name == "CHECKPOINT_FILE_MISSING"
    assert str(missing.value.facts["path"]).startswith(str(directory.checkpoint / "state"))
    # The doctor says the same about it, and what going back would cost.
    with Registry(place.registry_url) as registry:
        found = check_up(registry, registry.job("job"))
    problems = {each.epoch: each.problem for each in found.epochs}
    assert [epoch for epoch, problem in problems.items() if problem is None] == [1, 0]
    assert damaged in str(problems[4])
    assert (found.restorable, found.again_epochs, found.again_rows) == (1, 3, 3 * SIZE)
    assert found.fix.endswith("--from checkpoint:1 --sink rewind")
    (directory.checkpoint / "offsets" / "1").write_text("v2\n")
    with pytest.raises(CorruptionError, match="offsets/1") as cut:
        go_back(place, "checkpoint:1", "keep")
    assert cut.value.name == "CHECKPOINT_FILE_DAMAGED"
