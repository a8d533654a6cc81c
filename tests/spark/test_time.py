"""Event time, late records, timers and TTL in real jobs, against independent computations
and against the harness."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import JobDefinitionError, StateMismatchError
from holdfast.testing import Harness
from spark.processes import RunningTotal
from spark.timed import GAP, Both, Forgets, LateAware, Past, Recent, Remind, Sessions
from spark.workplace import Memory, Workplace

SCHEMA = "id bigint, user string, n bigint, ts timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DELAY = timedelta(seconds=30)
Row = tuple[int, str, int, datetime]


def edits(count: int, *, late: float, seed: int) -> list[list[Row]]:
    """Epochs of edits, out of order by up to 20 s; a share of them comes far too late."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        behind = rng.uniform(300, 3000) if rng.random() < late else rng.uniform(0, 20)
        time = NOON + timedelta(seconds=round(number * 3 - behind, 3))
        rows.append((number, f"user-{rng.randrange(12)}", rng.randrange(100), time))
    return [rows[at : at + 50] for at in range(0, count, 50)]


def split(epochs: list[list[Row]]) -> tuple[list[Row], list[Row], datetime]:
    """The truth about lateness: records on time, late ones, and the last watermark."""
    on_time: list[Row] = []
    late: list[Row] = []
    watermark = reached = datetime.min.replace(tzinfo=UTC)
    for rows in epochs:
        for row in rows:
            (late if row[3] <= watermark else on_time).append(row)
        reached = max([reached, *(row[3] for row in rows)])
        watermark = reached - DELAY
    return on_time, late, watermark


def write(folder: Path, epochs: list[list[Row]], first: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(epochs, first):
        lines = [
            json.dumps(
                dict(
                    zip(("id", "user", "n", "ts"), (*row[:3], row[3].isoformat()), strict=True)
                )
            )
            for row in rows
        ]
        hidden = folder / f".{number:04}.json"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
        hidden.rename(folder / f"{number:04}.json")


def source(place: Workplace) -> hf.sources.Files:
    return hf.sources.Files(
        place.path / "in", format="json", schema=SCHEMA, max_files_per_epoch=1
    )


def timed(
    place: Workplace, process: hf.KeyedProcess, out: Any, late_out: Any = None, **options: Any
) -> Any:
    def pipeline(flow: hf.Flow) -> None:
        rows = flow.watermark(flow.source("edits", source(place)), "ts", delay=DELAY)
        step = flow.key_by(rows, "user").process("step", process, **options)
        flow.sink("out", step, out)
        if late_out is not None:
            flow.sink("late", step.side("late"), late_out)

    return pipeline


def by_harness(process: hf.KeyedProcess, epochs: list[list[Row]]) -> Harness:
    harness = Harness(process, SCHEMA, key="user", event_time="ts", delay=DELAY)
    for rows in epochs:
        harness.push(*rows)
    harness.push()  # Spark lets the last watermark take effect
    return harness


def sessions(rows: list[Row], watermark: datetime) -> Counter[tuple[Any, ...]]:
    """The truth: closed sessions per user."""
    by_user = defaultdict(list)
    for row in rows:
        by_user[row[1]].append(row[3])
    found: Counter[tuple[Any, ...]] = Counter()
    for user, times in by_user.items():
        times.sort()
        begin = 0
        for at, time in enumerate(times):
            if at + 1 == len(times) or times[at + 1] - time >= GAP:
                if time + GAP <= watermark:
                    found[user, times[begin], time, at + 1 - begin] += 1
                begin = at + 1
    return found


def plain(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in row)
        for row in rows
    )


@pytest.mark.parametrize(
    "parallelism", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 5))]
)
def test_timers_and_late_records_equal_the_truth(
    place: Workplace, memory: Memory, parallelism: int
) -> None:
    epochs = edits(600, late=0.05, seed=parallelism)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    late_out, late_rows = memory("late")
    place.run(timed(place, Sessions(), out, late_out), parallelism=parallelism)
    on_time, late, watermark = split(epochs)
    assert plain([row[:4] for row in late_rows()]) == Counter(late)
    for row in late_rows():
        time, reached, by, arrived = row[3], row[4], row[5], row[7]
        assert time <= reached < arrived
        assert by == (reached - time) // timedelta(milliseconds=1)
    assert plain(rows()) == sessions(on_time, watermark)
    assert len(late) > 10
    records = place.epochs()
    assert sum(record.late["step"] for record in records if record.late) == len(late)
    assert records[-1].watermark == watermark
    harness = by_harness(Sessions(), epochs)
    assert Counter(harness.output) == plain(rows())
    # Watermark, delay and epoch are the same too.
    assert Counter(row[:7] for row in harness.side("late")) == plain(
        [row[:7] for row in late_rows()]
    )


def test_timers_survive_restarts(place: Workplace, memory: Memory) -> None:
    epochs = edits(600, late=0.02, seed=9)
    out, rows = memory("out")
    late_out, late_rows = memory("late")
    for part in range(3):
        write(place.path / "in", epochs[part * 4 : part * 4 + 4], part * 4)
        place.run(timed(place, Sessions(), out, late_out))
    on_time, late, watermark = split(epochs)
    assert plain([row[:4] for row in late_rows()]) == Counter(late)
    assert plain(rows()) == sessions(on_time, watermark)


def test_event_time_ttl_equals_the_harness(place: Workplace, memory: Memory) -> None:
    epochs = edits(400, late=0.05, seed=4)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    place.run(timed(place, Recent(), out, late="drop"))
    harness = Harness(Recent(), SCHEMA, key="user", event_time="ts", delay=DELAY)
    for part in epochs:
        harness.push(*part)
    assert plain(rows()) == Counter(harness.output)
    recent = [count for _, count in harness.output]
    assert max(recent) > 2 and recent.count(1) > 12  # it does forget
    assert place.epochs()[-1].state["step"].rows <= 12


def test_timers_in_the_past_fire_once_in_the_next_epoch(
    place: Workplace, memory: Memory
) -> None:
    epochs = edits(400, late=0, seed=6)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    place.run(timed(place, Past(), out, late="process"))
    # The last epoch without data is the one in which the last records' timers fire.
    assert Counter(rows()) == Counter((row[0],) for part in epochs for row in part)
    written = [record.output_rows for record in place.epochs()]
    assert written[:3] == [0, 50, 50]


def test_processing_time_timers_fire_in_an_idle_job(place: Workplace, memory: Memory) -> None:
    write(
        place.path / "in",
        [[(0, "ann", 100, NOON), (1, "ann", 1500, NOON), (2, "bob", 100, NOON)]],
    )
    out, rows = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(flow.source("edits", source(place)), "user")
        flow.sink("out", keyed.process("step", Remind()), out)

    place.run(pipeline, max_epochs=4, checkpoint={"interval": "1 s"})
    assert sorted(row[:2] for row in rows()) == [("ann", 2), ("ann", 2), ("bob", 1)]
    assert all(0 <= waited < 60_000 for _, _, waited in rows())
    first, *others = (record.input_rows for record in place.epochs())
    assert (first, sum(others)) == (3, 0)  # the ticks that make the epochs are no records


def test_both_clocks_in_one_step(place: Workplace, memory: Memory) -> None:
    write(
        place.path / "in", [[(0, "ann", 0, NOON)], [(1, "bob", 0, NOON + timedelta(hours=1))]]
    )
    out, rows = memory("out")
    pipeline = timed(place, Both(), out, late="process")
    place.run(pipeline)  # ends although timers are pending
    place.run(pipeline, max_epochs=2, checkpoint={"interval": "1 s"})
    assert Counter(map(tuple, rows())) == Counter(
        [("ann", "event"), ("ann", "processing"), ("bob", "processing")]
    )


def test_processing_time_ttl(place: Workplace, memory: Memory) -> None:
    out, rows = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(flow.source("edits", source(place)), "user")
        flow.sink("out", keyed.process("step", Forgets()), out)

    for part in range(2):
        write(place.path / "in", [[(0, "ann", 1, NOON)], [(1, "ann", 2, NOON)]], part * 2)
        place.run(pipeline)
        sleep(3.1)
    total, written = 0, None
    for n, found, now in rows():
        if written is not None and now - written >= timedelta(seconds=3):
            total = 0
        total, written = total + n, now
        assert found == total
    assert sum(n == found for n, found, _ in rows()) > 1  # it forgot at least once


@pytest.mark.parametrize("policy", ["process", "drop"])
def test_what_happens_to_late_records(place: Workplace, memory: Memory, policy: Any) -> None:
    epochs = edits(200, late=0.1, seed=2)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    place.run(timed(place, LateAware(), out, late=policy))
    on_time, late, _ = split(epochs)
    truth = Counter((row[0], False) for row in on_time)
    if policy == "process":
        truth += Counter((row[0], True) for row in late)
    assert plain(rows()) == truth


def test_two_sources_and_the_watermark_policy(place: Workplace, memory: Memory) -> None:
    early = [[(0, "ann", 0, NOON)], [(1, "ann", 0, NOON + timedelta(seconds=1))]]
    later = [
        [(2, "ann", 0, NOON + timedelta(hours=1))],
        [(3, "ann", 0, NOON + timedelta(hours=2))],
    ]
    write(place.path / "early", early)
    write(place.path / "later", later)
    found = {}
    for policy in ("min", "max"):
        out, rows = memory(f"out-{policy}")

        def pipeline(flow: hf.Flow, out: Any = out) -> None:
            frames = [
                flow.watermark(
                    flow.source(
                        uid,
                        hf.sources.Files(
                            place.path / uid,
                            format="json",
                            schema=SCHEMA,
                            max_files_per_epoch=1,
                        ),
                    ),
                    "ts",
                    delay=DELAY,
                )
                for uid in ("early", "later")
            ]
            keyed = flow.key_by(frames[0].union(frames[1]), "user")
            flow.sink("out", keyed.process("step", LateAware(), late="process"), out)

        place.run(pipeline, policy, watermark_policy=policy)
        found[policy] = dict(rows())
    assert found["min"] == {0: False, 1: False, 2: False, 3: False}
    assert found["max"] == {0: False, 1: True, 2: False, 3: False}


def test_ingestion_time_is_a_column(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, rows = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        flow.sink("out", flow.ingestion_time(flow.source("edits", source(place)), "seen"), out)

    place.run(pipeline)
    [row] = rows()
    assert abs(row[-1].replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=2)


def test_unread_late_records_are_refused(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")
    with pytest.raises(JobDefinitionError, match="SIDE_OUTPUT_NOT_READ"):
        place.run(timed(place, Sessions(), out))


def test_another_clock_is_refused_on_resume(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")

    def untimed(flow: hf.Flow) -> None:
        rows = flow.source("edits", source(place)).withColumnRenamed("n", "diff")
        flow.sink("out", flow.key_by(rows, "user").process("step", RunningTotal()), out)

    def with_time(flow: hf.Flow) -> None:
        rows = flow.source("edits", source(place)).withColumnRenamed("n", "diff")
        rows = flow.watermark(rows, "ts", delay="1 s")
        step = flow.key_by(rows, "user").process("step", RunningTotal(), late="drop")
        flow.sink("out", step, out)

    place.run(untimed)
    with pytest.raises(StateMismatchError, match="CLOCK_CHANGED"):
        place.run(with_time)


def test_watermark_on_a_column_that_is_no_time(place: Workplace, memory: Memory) -> None:
    out, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        rows = flow.watermark(flow.source("edits", source(place)), "n", delay="1 s")
        flow.sink("out", rows, out)

    write(place.path / "in", [])
    with pytest.raises(JobDefinitionError, match="INVALID_EVENT_TIME"):
        place.run(pipeline)
