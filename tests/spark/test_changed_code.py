"""Code whose steps, sources or backend are others than those that wrote the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.errors import RunFailedError, StateMismatchError
from holdfast.faults import armed
from holdfast.savepoint.store import verify
from spark.processes import RunningTotal, TotalAndCount
from spark.test_going_back import EDITS, SIZE
from spark.test_resume import SCHEMA, feed
from spark.workplace import Pipeline, Workplace, running_totals

LEFT, RIGHT = EDITS[: 3 * SIZE], EDITS[SIZE : 4 * SIZE]


class Longest(hf.KeyedProcess):
    """Another step than the running total, of the same shape of state."""

    most = hf.ValueState("bigint", default=0)
    output = "user string, most bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.most.value = max(self.most.value, abs(edit.diff))
        yield edit.user, self.most.value


def maxima(edits: Iterable[tuple[str, int]]) -> Counter[tuple[str, int]]:
    most: dict[str, int] = {}
    rows = []
    for user, diff in edits:
        most[user] = max(most.get(user, 0), abs(diff))
        rows.append((user, most[user]))
    return Counter(rows)


def rows_of(path: Path, columns: str) -> Counter[Any]:
    query = f"select {columns} from read_json('{path}/*.jsonl')"
    return Counter(duckdb.connect().execute(query).fetchall())


def log(place: Workplace, name: str) -> hf.sources.FileLog:
    # A segment per epoch: those of one epoch are read in any order.
    return hf.sources.FileLog(place.path / name, SCHEMA, max_segments_per_epoch=1)


def out(place: Workplace, name: str) -> hf.sinks.Files:
    return hf.sinks.Files(place.path / name, "json")


def two_steps(
    place: Workplace, order: str = "sum most", total: type[hf.KeyedProcess] = RunningTotal
) -> Pipeline:
    """Two steps on two sources; the order of sinks decides where Spark looks for state."""

    def pipeline(flow: hf.Flow) -> None:
        steps: dict[str, Any] = {}
        for uid in sorted(order.split(), reverse=True):
            source = flow.source("left" if uid == "sum" else "right", log(place, uid))
            process = total() if uid == "sum" else Longest()
            steps[uid] = flow.key_by(source, "user").process(uid, process)
        for uid in order.split():
            flow.sink(f"out-{uid}", steps[uid], out(place, f"out-{uid}"))

    return pipeline


def feed_half(place: Workplace, half: int) -> None:
    for uid, edits in (("sum", LEFT), ("most", RIGHT)):
        middle = len(edits) // 2
        feed(place.path / uid, edits[:middle] if half == 0 else edits[middle:], f"h{half}")


def check_both(place: Workplace) -> None:
    assert rows_of(place.path / "out-sum", "user, total") == Counter(running_totals(LEFT))
    assert rows_of(place.path / "out-most", "user, most") == maxima(RIGHT)


def test_steps_that_changed_places_find_their_state(place: Workplace) -> None:
    feed_half(place, 0)
    place.run(two_steps(place))
    savepoint = place.take()
    feed_half(place, 1)
    # Spark would give each step the state of the other.
    with pytest.raises(StateMismatchError, match="OPERATORS_REORDERED"):
        place.run(two_steps(place, "most sum"))
    place.restore(two_steps(place, "most sum"), savepoint.manifest.id)
    check_both(place)


def test_steps_and_sources_come_and_go(place: Workplace) -> None:
    feed_half(place, 0)
    place.run(two_steps(place, "most"))
    first = place.take().manifest.id
    # One more: it starts empty, at the beginning of its source.
    place.restore(two_steps(place, "sum most"), first)
    second = place.take().manifest.id
    feed_half(place, 1)
    # One less: only if that was said.
    with pytest.raises(StateMismatchError, match="--allow-non-restored-state") as caught:
        place.restore(two_steps(place, "sum"), second)
    assert caught.value.name == "STATE_NOT_RESTORED"
    place.restore(two_steps(place, "sum"), second, allow_dropped=True)
    assert rows_of(place.path / "out-sum", "user, total") == Counter(running_totals(LEFT))
    # And both again, from where both were.
    place.restore(two_steps(place), second, "rewind")
    check_both(place)


@pytest.mark.long
def test_a_job_changes_its_backend(tmp_path: Path) -> None:
    heap, rocksdb = Workplace(tmp_path, "heap"), Workplace(tmp_path, "rocksdb")
    feed_half(heap, 0)
    heap.run(two_steps(heap))
    feed_half(heap, 1)
    rocksdb.restore(two_steps(rocksdb), heap.take().manifest.id, parallelism=3)
    check_both(rocksdb)
    assert rocksdb.epochs()[-1].state["sum"].rows == len({user for user, _ in LEFT})


def test_a_variable_is_left_behind_only_if_that_was_said(place: Workplace) -> None:
    feed_half(place, 0)
    place.run(two_steps(place, total=TotalAndCount))
    savepoint = place.take().manifest.id
    feed_half(place, 1)
    with pytest.raises(StateMismatchError, match="STATE_VARIABLE_MISSING"):
        place.restore(two_steps(place), savepoint)
    place.restore(two_steps(place), savepoint, allow_dropped=True)
    check_both(place)


def test_a_moved_source_is_not_read_again(place: Workplace) -> None:
    feed_half(place, 0)
    place.run(two_steps(place))
    savepoint = place.take().manifest.id
    elsewhere = Workplace(place.path / "elsewhere")
    (place.path / "elsewhere").mkdir()
    for uid in ("sum", "most"):
        (place.path / uid).rename(elsewhere.path / uid)
    feed_half(elsewhere, 1)

    def pipeline(flow: hf.Flow) -> None:
        for uid, source, process in (
            ("sum", "left", RunningTotal()),
            ("most", "right", Longest()),
        ):
            step = flow.key_by(flow.source(source, log(elsewhere, uid)), "user").process(
                uid, process
            )
            flow.sink(f"out-{uid}", step, out(place, f"out-{uid}"))

    place.restore(pipeline, savepoint)
    check_both(place)


@pytest.mark.long
def test_a_restore_into_changed_code_may_be_cut_short_anywhere(tmp_path: Path) -> None:
    heap, rocksdb = Workplace(tmp_path, "heap"), Workplace(tmp_path, "rocksdb")
    feed_half(heap, 0)
    heap.run(two_steps(heap, "most"))
    savepoint = heap.take()
    directory = JobDirectory(heap.runtime().storage, "job")
    before = directory.load()
    feed_half(heap, 1)
    for point in ("restore.copied", "restore.planted", "graft.moved"):
        with armed(f"{point}=raise"), pytest.raises(RunFailedError, match=point):
            rocksdb.restore(two_steps(rocksdb), savepoint.manifest.id, parallelism=3)
        assert directory.load() == before, "the job is as it was"
    verify(savepoint)
    heap.run(two_steps(heap, "most"))
    with armed("restore.switched=raise"), pytest.raises(RunFailedError, match="switched"):
        rocksdb.restore(two_steps(rocksdb), savepoint.manifest.id, "rewind", parallelism=3)
    # From here on the job has gone back; it goes on with the new code.
    rocksdb.run(two_steps(rocksdb), parallelism=3)
    check_both(rocksdb)
