"""Sources that fall silent, in real jobs: who is waited for, and that no row is lost by it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.faults import armed
from spark.timed import LateAware, Sessions
from spark.workplace import Memory, Workplace

SCHEMA = "id bigint, user string, n bigint, ts timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUICK = {"interval": "1 s"}


def write(place: Workplace, uid: str, name: str, rows: list[tuple[int, str, datetime]]) -> None:
    folder = place.path / uid
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"id": at, "user": user, "n": 0, "ts": ts.isoformat()})
        for at, user, ts in rows
    ]
    (folder / f".{name}").write_text("\n".join(lines))
    (folder / f".{name}").rename(folder / f"{name}.json")


def frames(flow: hf.Flow, place: Workplace, idle_after: str | None) -> Any:
    busy, quiet = (
        flow.watermark(
            flow.source(uid, hf.sources.Files(place.path / uid, format="json", schema=SCHEMA)),
            "ts",
            delay="10 s",
            idle_after=idle_after,
        )
        for uid in ("busy", "quiet")
    )
    # Spark moves such a filter below the watermark, where it must not meet the beats.
    return busy.union(quiet).where("user IS NOT NULL")


def sessions(place: Workplace, out: Any, late: Any, idle_after: str | None = "2 s") -> Any:
    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(frames(flow, place, idle_after), "user")
        step = keyed.process("step", Sessions())
        flow.sink("out", step, out)
        flow.sink("late", step.side("late"), late)

    return pipeline


@pytest.mark.long
def test_an_idle_source_is_left_out(place: Workplace, memory: Memory) -> None:
    out, rows = memory("out")
    late_out, late = memory("late")
    pipeline = sessions(place, out, late_out)
    write(place, "quiet", "0", [(0, "ann", NOON)])
    write(place, "busy", "0", [(1, "bob", NOON), (2, "bob", NOON + timedelta(hours=1))])
    place.run(pipeline, max_epochs=2, checkpoint=QUICK)
    assert rows() == []  # everything waits for the source that is quiet
    assert place.epochs()[-1].watermark == NOON - timedelta(seconds=10)

    # The crash may come before or after the watermark has moved on; the epoch that it has cut
    # is repeated.
    with armed("epoch.end=raise@5"), pytest.raises(HoldfastError):
        place.run(pipeline, max_epochs=9, checkpoint=QUICK)
    place.run(pipeline, max_epochs=7, checkpoint=QUICK)
    assert sorted((user, edits) for user, *_, edits in rows()) == [("ann", 1), ("bob", 1)]
    last = place.epochs()[-1]
    assert last.watermark == NOON + timedelta(hours=1, seconds=-10)
    assert last.waited_for == {"busy": False, "quiet": False}
    assert sum(epoch.input_rows for epoch in place.epochs()) == 3  # no ticks, no beats

    # It comes back, an hour behind: that is late now. What is not late, is kept.
    later = NOON + timedelta(hours=1, minutes=1)
    write(place, "quiet", "1", [(3, "ann", NOON + timedelta(minutes=2)), (4, "ann", later)])
    place.run(pipeline, max_epochs=1, checkpoint=QUICK)
    assert [row[0] for row in late()] == [3]
    assert len(rows()) == 2
    [back] = [epoch for epoch in place.epochs() if epoch.input_rows == 2]
    assert back.waited_for["quiet"]


@pytest.mark.long
def test_idle_after_can_be_added_and_left_out(place: Workplace, memory: Memory) -> None:
    """The clock that it needs is a source of its own, which stored positions may not know."""
    write(place, "quiet", "0", [(0, "ann", NOON)])
    write(place, "busy", "0", [(1, "bob", NOON)])
    out, rows = memory("out")

    def pipeline(idle_after: str | None) -> Any:
        def declared(flow: hf.Flow) -> None:
            keyed = flow.key_by(frames(flow, place, idle_after), "user")
            flow.sink("out", keyed.process("step", LateAware(), late="process"), out)

        return declared

    for at, idle_after in enumerate((None, "1 min", None), 2):
        place.run(pipeline(idle_after))
        write(place, "busy", str(at), [(at, "bob", NOON + timedelta(minutes=at))])
    saved = place.take_canonical()  # by a run without a clock, before the last row
    place.restore(pipeline("1 min"), saved.manifest.id, parallelism=3)
    assert Counter(row[0] for row in rows()) == Counter(range(5))
    rescaled = place.take()
    write(place, "quiet", "5", [(5, "ann", NOON)])
    place.restore(pipeline("1 min"), rescaled.manifest.id, parallelism=2)
    assert Counter(row[0] for row in rows()) == Counter(range(6))


def test_a_source_with_two_readers_may_be_idle(place: Workplace, memory: Memory) -> None:
    write(place, "quiet", "0", [(0, "ann", NOON)])
    write(place, "busy", "0", [(1, "bob", NOON)])
    outs = {name: memory(name) for name in ("one", "other")}

    def pipeline(flow: hf.Flow) -> None:
        rows = frames(flow, place, "1 min")
        for name, (out, _) in outs.items():
            step = flow.key_by(rows, "user").process(f"step-{name}", LateAware(), late="drop")
            flow.sink(name, step, out)

    place.run(pipeline)
    for _, rows in outs.values():
        assert Counter(row[0] for row in rows()) == Counter([0, 1])


def test_only_sources_may_be_idle(place: Workplace, memory: Memory) -> None:
    write(place, "busy", "0", [(1, "bob", NOON)])
    out, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        files = hf.sources.Files(place.path / "busy", format="json", schema=SCHEMA)
        first = flow.stateful("first", flow.source("busy", files).dropDuplicates(["user"]))
        flow.sink("out", flow.watermark(first, "ts", delay=0, idle_after="1 s"), out)

    with pytest.raises(JobDefinitionError, match="idle_after is for sources"):
        place.run(pipeline)
