"""A job that is started again: it goes on, and changed code is accepted or refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import holdfast as hf
from holdfast.control.registry import Registry
from holdfast.demo.edits import generate
from holdfast.errors import ConflictError, JobDefinitionError, StateMismatchError
from spark.processes import (
    OnceRenamedTotal,
    OtherKeyTotal,
    OtherNameTotal,
    RenamedTotal,
    ReusedName,
    RunningTotal,
    TextTotal,
    TotalAndCount,
    TwiceRenamedTotal,
)
from spark.workplace import Memory, Workplace, running_totals

SCHEMA = "user string, diff bigint"
ROWS = [(edit["user"], edit["diff"]) for edit in generate(1_200, users=25, seed=8)]
Process = Callable[[], hf.KeyedProcess]


def feed(path: Path, rows: list[tuple[str, int]], producer: str) -> None:
    # One segment, however slow the machine is: segments of one epoch are read in any order.
    with hf.FileLogProducer(path, producer_id=producer, max_delay="1 h") as log:
        for user, diff in rows:
            log.send({"user": user, "diff": diff})


def totals(
    place: Workplace,
    sink: hf.sinks.Sink,
    process: Process = RunningTotal,
    *,
    uid: str = "sum",
    source: str = "edits",
    key: str = "user",
) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source(source, hf.sources.FileLog(place.path / "log", SCHEMA))
        flow.sink("out", flow.key_by(edits, key).process(uid, process()), sink)

    return pipeline


def test_state_output_and_history_go_on(place: Workplace) -> None:
    out = place.path / "out"
    pipeline = totals(place, hf.sinks.Files(out, "json"))
    for part in range(3):
        feed(place.path / "log", ROWS[part * 400 : part * 400 + 400], f"p{part}")
        place.run(pipeline)
    query = f"select user, total from read_json('{out}/*.jsonl')"
    assert Counter(duckdb.connect().execute(query).fetchall()) == Counter(running_totals(ROWS))
    epochs = place.epochs()
    assert [(epoch.epoch, epoch.attempt) for epoch in epochs] == [(0, 1), (1, 2), (2, 3)]
    assert [epoch.sinks["out"].rows for epoch in epochs] == [400, 400, 400]
    assert all(
        set(epoch.phases) >= {"offsets", "plan", "execute", "commit"} for epoch in epochs
    )
    assert epochs[-1].state["sum"].rows == len({user for user, _ in ROWS})
    assert epochs[-1].offsets["edits"]


def test_changes_of_code_that_keep_the_state(place: Workplace, memory: Memory) -> None:
    """A variable added, one renamed with its old name given, one widened."""
    feed(place.path / "log", ROWS[:400], "a")
    sink, _ = memory("first")
    place.run(totals(place, sink))
    feed(place.path / "log", ROWS[400:800], "b")
    sink, written = memory("second")
    place.run(totals(place, sink, TotalAndCount))
    truth = running_totals(ROWS)
    counts: Counter[str] = Counter()
    expected = []
    for user, total in truth[400:800]:
        counts[user] += 1
        expected.append((user, total, counts[user]))
    assert Counter(written()) == Counter(expected)

    feed(place.path / "log", ROWS[800:1_000], "c")
    sink, written = memory("third")
    place.run(totals(place, sink, RenamedTotal))
    assert Counter(written()) == Counter(truth[800:1_000])

    # The old name may go from the code, or the variable be renamed once more: blocks that
    # were written under any of its names are still found.
    feed(place.path / "log", ROWS[1_000:1_100], "d")
    sink, written = memory("fourth")
    place.run(totals(place, sink, OnceRenamedTotal))
    assert Counter(written()) == Counter(truth[1_000:1_100])
    feed(place.path / "log", ROWS[1_100:], "e")
    sink, written = memory("fifth")
    place.run(totals(place, sink, TwiceRenamedTotal))
    assert Counter(written()) == Counter(truth[1_100:])
    with pytest.raises(StateMismatchError, match="STATE_NAME_REUSED"):
        place.run(totals(place, sink, ReusedName))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"process": OtherNameTotal}, "STATE_VARIABLE_MISSING"),
        ({"process": TextTotal}, "STATE_TYPE_CHANGED"),
        ({"process": OtherKeyTotal, "key": "diff"}, "KEYS_CHANGED"),
        ({"uid": "other"}, "OPERATORS_CHANGED"),
        ({"source": "other"}, "SOURCES_CHANGED"),
    ],
)
def test_changes_of_code_that_would_lose_state(
    place: Workplace, memory: Memory, change: dict[str, Any], name: str
) -> None:
    feed(place.path / "log", ROWS[:50], "a")
    sink, written = memory("out")
    place.run(totals(place, sink))
    feed(place.path / "log", ROWS[50:100], "b")
    with pytest.raises(StateMismatchError) as caught:
        place.run(totals(place, sink, **change))
    assert caught.value.name == name
    assert caught.value.fix
    # Nothing was touched: the old code goes on.
    place.run(totals(place, sink))
    assert Counter(written()) == Counter(running_totals(ROWS[:100]))


def test_another_parallelism_is_refused(place: Workplace, memory: Memory) -> None:
    feed(place.path / "log", ROWS[:50], "a")
    sink, _ = memory("out")
    place.run(totals(place, sink))
    with pytest.raises(StateMismatchError, match=r"2 partitions.*parallelism=8"):
        place.run(totals(place, sink), parallelism=8)
    with pytest.raises(StateMismatchError, match="KEY_GROUPS_DIFFER"):
        place.run(totals(place, sink), key_groups=128)


def test_output_of_another_job_is_not_mixed_with(place: Workplace) -> None:
    """The checkpoint is deleted, the output is not: Spark would silently write nothing."""
    feed(place.path / "log", ROWS[:50], "a")
    pipeline = totals(place, hf.sinks.Files(place.path / "out"))
    place.run(pipeline)
    (place.path / "jobs" / "job").rename(place.path / "gone")
    with pytest.raises(ConflictError, match="SINK_OWNED_BY_ANOTHER_JOB"):
        place.run(pipeline)


def test_checkpoint_without_which_the_sink_would_skip_epochs(place: Workplace) -> None:
    feed(place.path / "log", ROWS[:50], "a")
    pipeline = totals(place, hf.sinks.Files(place.path / "out"))
    place.run(pipeline)
    (place.path / "jobs" / "job" / "checkpoint").rename(place.path / "gone")
    with pytest.raises(StateMismatchError, match=r"SINK_AHEAD_OF_CHECKPOINT.*epochs up to 0"):
        place.run(pipeline)


def test_named_operator_is_the_same_in_another_run(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog(place.path / "log", SCHEMA))
        flow.sink("out", flow.stateful("unique", edits.dropDuplicates(["user"])), sink)

    for part in range(2):
        feed(place.path / "log", ROWS[:50], f"p{part}")
        place.run(pipeline)
    assert len(written()) == len({user for user, _ in ROWS[:50]})


def test_second_driver_is_refused(place: Workplace, memory: Memory) -> None:
    from holdfast.checkpoint.identity import JobDirectory

    with (
        JobDirectory(place.path / "jobs", "job").locked(),
        pytest.raises(ConflictError, match=r"JOB_IS_RUNNING.*process \d+"),
    ):
        place.run(totals(place, memory("out")[0]))


def test_sources_of_a_job_are_told_apart(place: Workplace, memory: Memory) -> None:
    """Positions are recorded under the uid they belong to, whatever Spark's order."""
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        one = flow.source("one", hf.sources.Collection(ROWS[:10], SCHEMA, rows_per_epoch=2))
        two = flow.source("two", hf.sources.Collection(ROWS[:10], SCHEMA, rows_per_epoch=5))
        flow.sink("out", two.union(one), sink)

    place.run(pipeline)
    offsets = place.epochs()[-1].offsets
    assert offsets == {"one": {"logOffset": 4}, "two": {"logOffset": 1}}


def test_weak_guarantee_is_refused(place: Workplace, memory: Memory) -> None:
    (place.path / "log").mkdir()

    class Socket(hf.sources.FileLog):
        """A source that cannot be read again."""

        replayable = False

    def pipeline(flow: hf.Flow) -> None:
        source = flow.source("edits", Socket(place.path / "log", SCHEMA))
        flow.sink("out", source, hf.sinks.Files(place.path / "out"))

    with pytest.raises(JobDefinitionError, match=r"EXACTLY_ONCE_NOT_POSSIBLE.*source 'edits'"):
        place.run(pipeline)
    place.run(pipeline, checkpoint={"mode": "at_least_once"})


def test_without_checkpoints_every_attempt_starts_from_scratch(place: Workplace) -> None:
    out = place.path / "out"
    pipeline = totals(place, hf.sinks.Files(out, "json"))
    feed(place.path / "log", ROWS[:400], "a")
    for parallelism in (2, 3):  # nothing is kept, so nothing is bound to it
        place.run(pipeline, checkpoint={"mode": "none"}, parallelism=parallelism)
    query = f"select user, total from read_json('{out}/*.jsonl')"
    found = Counter(duckdb.connect().execute(query).fetchall())
    once = Counter(running_totals(ROWS[:400]))
    assert found == once + once  # with state kept, the second would have gone on from the first
    with Registry(place.registry_url) as registry:
        attempts = registry.attempts(registry.job("job").id)
    assert [attempt.info["from"] for attempt in attempts] == ["nothing", "nothing"]
    assert [(each.epoch, each.attempt) for each in place.epochs()] == [(0, 1), (0, 2)]
    feed(place.path / "log", ROWS[400:500], "b")
    place.run(pipeline, parallelism=3)  # from now on it is kept
    with Registry(place.registry_url) as registry:
        assert registry.attempts(registry.job("job").id)[-1].info["from"] == "epoch 0"
