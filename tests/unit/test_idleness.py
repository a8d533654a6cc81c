"""When a source counts as idle, and which one a job waits for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.engine.idle import IdleNotes, beater
from holdfast.errors import JobDefinitionError
from holdfast.event_time.idleness import Watched, idle_watermarks, watermark_doings
from holdfast.storage.files import read_json
from holdfast.testing import FlowHarness

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_source_is_idle_after_its_own_time_only() -> None:
    watched = [Watched(("a",), MINUTE), Watched(("b",), None), Watched(("c",), 5 * MINUTE)]
    last = dict.fromkeys("abc", NOON)
    assert idle_watermarks(watched, last, NOON + MINUTE / 2) == ()
    assert idle_watermarks(watched, last, NOON + MINUTE) == (0,)
    assert idle_watermarks(watched, last, NOON + 10 * MINUTE) == (0, 2)


def test_a_watermark_over_two_sources_is_idle_when_both_are() -> None:
    watched = [Watched(("a", "b"), MINUTE)]
    assert idle_watermarks(watched, {"a": NOON, "b": NOON + MINUTE}, NOON + MINUTE) == ()
    assert idle_watermarks(watched, {"a": NOON, "b": NOON}, NOON + MINUTE) == (0,)


def test_who_holds_the_watermark() -> None:
    moved = {"a": NOON, "b": NOON + MINUTE, "no-watermark": NOON - MINUTE}
    both = {"a": True, "b": True}
    assert watermark_doings(moved, both) == {"a": "holds it", "b": "moves it"}
    assert watermark_doings(moved, both | {"a": False}) == {"a": "idle", "b": "moves it"}
    together = {"a": NOON, "b": NOON}
    assert watermark_doings(together, both) == {"a": "moves it", "b": "moves it"}
    assert watermark_doings({"a": NOON}, {"a": True}) == {"a": "moves it"}
    assert watermark_doings({"a": None, "b": NOON}, both)["b"] == "moves it"


def test_what_the_driver_notes(tmp_path: Path) -> None:
    file = tmp_path / "idle.json"
    watched = [Watched(("a",), MINUTE), Watched(("b",), None)]
    notes = IdleNotes(file, "run-1", watched)
    metrics = {"__holdfast_largest_0": {"largest": 5}, "__holdfast_largest_1": {"largest": 7}}
    notes.follow({"observedMetrics": metrics}, {"a": 1, "b": 1}, NOON, NOON)
    assert read_json(file) == {"run": "run-1", "largest": 7, "idle": []}
    notes.follow({}, {"a": 0, "b": 1}, NOON + MINUTE, NOON + MINUTE)
    assert read_json(file)["idle"] == [0]
    assert notes.sources == {"a": True, "b": False}

    # The next run goes on with the largest time, and has to see for itself who is idle.
    follower = IdleNotes(file, "run-2", watched)
    follower.follow({}, {"a": 0, "b": 0}, NOON + 9 * MINUTE, NOON + 9 * MINUTE)
    follower.follow({}, {"a": 1, "b": 0}, NOON + 19 * MINUTE, NOON + 19 * MINUTE)
    assert follower.sources == {"a": False, "b": False}
    follower.follow({}, {"a": 0, "b": 0}, NOON + 29 * MINUTE, NOON + 29 * MINUTE)
    assert read_json(file) == {"run": "run-2", "largest": 7, "idle": [0]}


def test_beats_are_for_the_run_that_noted_them(tmp_path: Path) -> None:
    import pyarrow as pa

    file = tmp_path / "idle.json"
    tick = pa.RecordBatch.from_pydict({"value": [1, 2]})
    assert list(beater(file, "run-1", 0)(iter([tick]))) == []  # no file is no harm
    file.write_text('{"run": "run-1", "largest": 7, "idle": [1]}')
    [beat] = beater(file, "run-1", 1)(iter([tick]))
    assert beat.to_pydict() == {"largest": [7]}
    assert list(beater(file, "run-1", 0)(iter([tick]))) == []
    assert list(beater(file, "run-2", 1)(iter([tick]))) == []
    assert list(beater(file, "run-1", 1)(iter([]))) == []


class Late(hf.KeyedProcess):
    output = "id bigint, late boolean"

    def process(self, record, ctx):  # type: ignore[no-untyped-def]
        yield record.id, ctx.is_late(record)


def pipeline(flow: hf.Flow) -> None:
    schema = "id bigint, user string, ts timestamp"
    busy, quiet = (
        flow.watermark(
            flow.source(uid, hf.sources.Files("unread", format="json", schema=schema)),
            "ts",
            delay=0,
            idle_after="1 min",
        )
        for uid in ("busy", "quiet")
    )
    step = flow.key_by(busy.union(quiet), "user").process("step", Late(), late="process")
    flow.sink("out", step, hf.sinks.Files("unwritten"))


def test_the_harness_leaves_idle_sources_out() -> None:
    harness = FlowHarness(pipeline)
    harness.push("quiet", (0, "ann", NOON))
    harness.push("busy", (1, "ann", NOON + timedelta(hours=1)))
    assert harness.watermark == NOON
    harness.advance_time("1 min")
    assert harness.watermark == NOON + timedelta(hours=1)
    harness.push("quiet", (2, "ann", NOON + MINUTE))
    assert harness.output("out")[-1] == (2, True)


def test_no_patience_at_all_is_refused() -> None:
    def impatient(flow: hf.Flow) -> None:
        rows = flow.source(
            "a", hf.sources.Files("unread", format="json", schema="ts timestamp")
        )
        flow.watermark(rows, "ts", delay=0, idle_after=0)

    with pytest.raises(JobDefinitionError, match="INVALID_OPTION"):
        FlowHarness(impatient)
