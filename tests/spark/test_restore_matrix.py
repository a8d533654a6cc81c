"""Every kind of stateful step, through every way of taking its state elsewhere.

A job gets its input in parts. Between them it goes through plain columns into the other
backend and to more partitions; then to fewer, with a step more and its sinks in another order;
then back into the first backend, without that step. What it has written in the end is what
plain Python makes of the whole input. So it is when a job is taken back to a savepoint, and
when an epoch fails after its rows were written and its state was stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import functions as f

import holdfast as hf
from holdfast.errors import RunFailedError
from holdfast.faults import armed
from holdfast.savepoint.store import verify
from spark.processes import CountPerTotal, RunningTotal, TotalWithParity
from spark.timed import GAP, Flag, Sessions
from spark.windowed import Sums
from spark.workplace import Workplace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAR = NOON + timedelta(days=100)
PARTS, SIZE = 4, 40
EDIT = "id bigint, user string, diff bigint, n bigint, ts timestamp"
RULE = "name string, limit bigint"


def edit(n: int) -> dict[str, Any]:
    """Three in a row by the same user, 20 seconds apart."""
    return {
        "id": n,
        "user": f"user-{n // 3 % 7}",
        "diff": n * 37 % 101 - 50,
        "n": n % 100,
        "ts": NOON + n * timedelta(seconds=20),
    }


EDITS = [edit(n) for n in range(PARTS * SIZE)]
LIMITS = [30, 60, 10, 90]
"""A rule for each part; it comes with the part's edits."""


class Kept(hf.KeyedProcess):
    """What a user did in the last 50 days of event time."""

    edits = hf.MapState("bigint", "boolean", ttl=hf.Ttl("50 d", clock="event"))
    output = "id bigint, kept bigint"

    def process(self, record: Any, ctx: hf.Context) -> Iterable[Any]:
        self.edits[record.id] = True
        yield record.id, len(self.edits)


def send(place: Workplace, log: str, rows: list[dict[str, Any]]) -> None:
    with hf.FileLogProducer(place.path / log, producer_id="p", max_delay="1 h") as producer:
        for row in rows:
            producer.send(row)


def log_of(place: Workplace, name: str, schema: str) -> hf.sources.FileLog:
    """A segment per epoch: those of one epoch are read in any order."""
    return hf.sources.FileLog(place.path / name, schema, max_segments_per_epoch=1)


@dataclass(frozen=True)
class Check:
    """A job with one or more stateful steps, and the truth about its output."""

    name: str
    pipeline: Callable[[Workplace, bool], Callable[[hf.Flow], None]]
    logs: tuple[str, ...]
    truth: Callable[[], dict[str, Counter[Any]]]
    columns: dict[str, str]
    grouped: dict[str, str] = field(default_factory=dict)
    timed: tuple[str, ...] = ()
    """Logs with a watermark that something waits for."""

    def feed(self, place: Workplace, part: int) -> None:
        for name in self.logs:
            send(place, name, EDITS[part * SIZE : (part + 1) * SIZE])
        send(place, "rules", [{"name": "bytes", "limit": LIMITS[part]}])

    def feed_far(self, place: Workplace, number: int) -> None:
        """An edit of a hundred days later, to where there is a watermark."""
        for name in self.timed:
            send(place, name, [{**edit(0), "id": number, "ts": FAR}])

    def validate(self, place: Workplace) -> None:
        for sink, expected in self.truth().items():
            rows = f"read_json('{place.path / sink}/*.jsonl')"
            query = f"SELECT {self.columns[sink]} FROM {rows} {self.grouped.get(sink, '')}"
            found = Counter(duckdb.connect().execute(query).fetchall())
            assert found == expected, sink


def written(place: Workplace, flow: hf.Flow, frames: dict[str, Any], extra: bool) -> None:
    """With a step more and the sinks in another order, Spark numbers all steps otherwise."""
    if extra:
        source = flow.source("more", log_of(place, "more", EDIT))
        frames = {"out-extra": flow.key_by(source, "user").process("extra", RunningTotal())} | {
            name: frames[name] for name in reversed(frames)
        }
    for name, frame in frames.items():
        flow.sink(name, frame, hf.sinks.Files(place.path / name, "json"))


def processes(place: Workplace, extra: bool) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        def timed(name: str) -> Any:
            rows = flow.source(f"in-{name}", log_of(place, name, EDIT))
            return flow.key_by(flow.watermark(rows, "ts", delay="1 s"), "user")

        rules = flow.source("rules", log_of(place, "rules", RULE))
        plain = flow.source("plain", log_of(place, "plain", EDIT))
        written(
            place,
            flow,
            {
                "out-sessions": timed("sessions").process("sessions", Sessions(), late="drop"),
                "out-kept": timed("kept").process("kept", Kept(), late="drop"),
                "out-flag": flow.key_by(plain, "user").process("flag", Flag(), broadcast=rules),
            },
            extra,
        )

    return pipeline


def processes_truth() -> dict[str, Counter[Any]]:
    sessions: Counter[Any] = Counter()
    by_user: dict[str, list[datetime]] = {}
    for row in EDITS:
        by_user.setdefault(row["user"], []).append(row["ts"])
    for user, times in by_user.items():
        first = count = 0
        for at, time in enumerate(times):
            count += 1
            if at + 1 == len(times) or times[at + 1] - time >= GAP:
                sessions[user, count] += 1
                first, count = at + 1, 0
        assert first == len(times)
    flagged: Counter[str] = Counter()
    flags: Counter[Any] = Counter()
    seen: Counter[str] = Counter()
    kept: Counter[Any] = Counter()
    for row in EDITS:
        limit = LIMITS[row["id"] // SIZE]
        flagged[row["user"]] += row["n"] > limit
        flags[row["id"], limit, flagged[row["user"]]] += 1
        seen[row["user"]] += 1
        kept[row["id"], seen[row["user"]]] += 1
    # Two more, a hundred days later: when the second one comes, all but these is forgotten.
    kept[-1, seen["user-0"] + 1] += 1
    kept[-2, 2] += 1
    return {
        "out-sessions": sessions,
        "out-kept": kept,
        "out-flag": flags,
    }


def chains(place: Workplace, extra: bool) -> Callable[[hf.Flow], None]:
    """A step after a step, and windows in Python."""

    def pipeline(flow: hf.Flow) -> None:
        plain = flow.source("plain", log_of(place, "plain", EDIT))
        sums = flow.key_by(plain, "user").process("sums", TotalWithParity())
        rows = flow.source("in-windows", log_of(place, "windows", EDIT))
        timed = flow.key_by(flow.watermark(rows, "ts", delay="1 s"), "user")
        windows = timed.window(hf.windows.Tumbling("10 min"))
        written(
            place,
            flow,
            {
                "out-parity": flow.key_by(sums, "odd").process("parity", CountPerTotal()),
                "out-windows": windows.process("windows", Sums(), late="drop"),
            },
            extra,
        )

    return pipeline


def chains_truth() -> dict[str, Counter[Any]]:
    totals: Counter[str] = Counter()
    parities: Counter[bool] = Counter()
    windows: dict[Any, tuple[int, int]] = {}
    for row in EDITS:
        totals[row["user"]] += row["diff"]
        parities[totals[row["user"]] % 2 == 1] += 1
        start = NOON + (row["ts"] - NOON) // timedelta(minutes=10) * timedelta(minutes=10)
        edits, total = windows.get((row["user"], start), (0, 0))
        windows[row["user"], start] = edits + 1, total + row["n"]
    return {
        "out-parity": Counter((odd, n + 1) for odd in parities for n in range(parities[odd])),
        "out-windows": Counter(
            (user, f"{start:%H:%M}", edits, total)
            for (user, start), (edits, total) in windows.items()
        ),
    }


def natives(place: Workplace, extra: bool) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        def log(name: str) -> Any:
            return flow.source(name, log_of(place, name, EDIT))

        distinct = flow.stateful("distinct", log("dedup").dropDuplicates(["user", "diff"]))
        left = log("left").selectExpr("id AS left_id", "n")
        right = log("right").selectExpr("id + 20 AS right_id", "diff")
        joined = flow.stateful("joined", left.join(right, f.expr("left_id = right_id")))
        totals = flow.key_by(log("plain"), "user").process("totals", RunningTotal())
        written(
            place,
            flow,
            {"out-distinct": distinct, "out-joined": joined, "out-totals": totals},
            extra,
        )

    return pipeline


def natives_truth() -> dict[str, Counter[Any]]:
    totals: Counter[str] = Counter()
    rows: Counter[Any] = Counter()
    for row in EDITS:
        totals[row["user"]] += row["diff"]
        rows[row["user"], totals[row["user"]]] += 1
    return {
        "out-distinct": Counter({(row["user"], row["diff"]): 1 for row in EDITS}),
        "out-joined": Counter(
            (row["id"] + 20, row["diff"]) for row in EDITS if row["id"] + 20 < len(EDITS)
        ),
        "out-totals": rows,
    }


def aggregations(place: Workplace, extra: bool) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        rows = flow.source("plain", log_of(place, "plain", EDIT))
        timed = flow.source("timed", log_of(place, "timed", EDIT))
        marked = flow.watermark(timed, "ts", delay="1 h")
        windows = flow.key_by(marked, "user").window(hf.windows.Tumbling("30 min"))
        written(
            place,
            flow,
            {
                "out-aggregate": flow.key_by(rows, "user").aggregate("sum", n=f.count("*")),
                "out-windows": windows.aggregate("windows", n=f.count("*")),
            },
            extra,
        )

    return pipeline


def aggregations_truth() -> dict[str, Counter[Any]]:
    users = Counter(row["user"] for row in EDITS)
    windows = Counter(
        (row["user"], (row["ts"] - NOON) // timedelta(minutes=30)) for row in EDITS
    )
    return {
        "out-aggregate": Counter(users.items()),
        "out-windows": Counter((user, n) for (user, _), n in windows.items()),
    }


def rolling(place: Workplace, extra: bool) -> Callable[[hf.Flow], None]:
    def pipeline(flow: hf.Flow) -> None:
        rows = flow.source("plain", log_of(place, "plain", EDIT))
        step = flow.key_by(rows, "user").rolling("rolling", n=f.count("*"))
        written(place, flow, {"out-rolling": step}, extra)

    return pipeline


def rolling_truth() -> dict[str, Counter[Any]]:
    users = Counter(row["user"] for row in EDITS)
    return {"out-rolling": Counter((user, n + 1) for user in users for n in range(users[user]))}


CHECKS = [
    Check(
        "processes",
        processes,
        ("sessions", "kept", "plain"),
        processes_truth,
        {
            "out-sessions": "user, edits",
            "out-kept": "id, kept",
            "out-flag": 'id, "limit", flagged',
        },
        timed=("sessions", "kept"),
    ),
    Check(
        "chains",
        chains,
        ("plain", "windows"),
        chains_truth,
        {
            "out-parity": "odd, count",
            "out-windows": "user, strftime(start, '%H:%M'), edits, total",
        },
        timed=("windows",),
    ),
    Check(
        "natives",
        natives,
        ("dedup", "left", "right", "plain"),
        natives_truth,
        {
            "out-distinct": "user, diff",
            "out-joined": "left_id, diff",
            "out-totals": "user, total",
        },
    ),
    Check(
        "aggregations",
        aggregations,
        ("plain", "timed"),
        aggregations_truth,
        {
            # An aggregation sends its result again and again.
            "out-aggregate": "user, max(n)",
            "out-windows": "user, max(n)",
        },
        {"out-aggregate": "GROUP BY user", "out-windows": "GROUP BY user, window_start"},
    ),
    Check("rolling", rolling, ("plain",), rolling_truth, {"out-rolling": "user, n"}),
]


def checks(*short: str) -> pytest.MarkDecorator:
    """All of them; those that are not named are left to `make test-long`."""
    each = [
        pytest.param(
            check, id=check.name, marks=() if check.name in short else pytest.mark.long
        )
        for check in CHECKS
    ]
    return pytest.mark.parametrize("check", each)


@pytest.mark.timeout(600)
@checks("rolling")
def test_state_goes_everywhere(tmp_path: Path, check: Check) -> None:
    heap, rocksdb = Workplace(tmp_path, "heap"), Workplace(tmp_path, "rocksdb")
    plain, wider = check.pipeline(heap, False), check.pipeline(heap, True)
    check.feed(heap, 0)
    heap.run(plain)
    canonical = heap.take_canonical()
    verify(canonical)
    check.feed(heap, 1)
    rocksdb.restore(plain, canonical.manifest.id, parallelism=3)
    native = rocksdb.take()
    check.feed(heap, 2)
    rocksdb.restore(wider, native.manifest.id, parallelism=2)
    canonical = rocksdb.take_canonical()
    check.feed(heap, 3)
    # A watermark takes effect in the next epoch; by then, what was kept has expired.
    check.feed_far(heap, -1)
    heap.restore(plain, canonical.manifest.id, allow_dropped=True)
    if check.timed:
        check.feed_far(heap, -2)
        heap.run(plain)
    check.validate(heap)


@pytest.mark.timeout(600)
@checks("natives")
def test_state_after_a_rollback_and_a_crash(tmp_path: Path, check: Check) -> None:
    place = Workplace(tmp_path, "heap" if check.name != "chains" else "rocksdb")
    plain = check.pipeline(place, False)
    check.feed(place, 0)
    place.run(plain)
    savepoint = place.take()
    check.feed(place, 1)
    place.run(plain)
    check.feed(place, 2)
    place.restore(plain, savepoint.manifest.id, "rewind")  # reads the second part again
    check.feed(place, 3)
    check.feed_far(place, -1)
    # All sinks have the epoch and the state has its changes; Spark has not noted its end.
    with armed("epoch.end=raise"), pytest.raises(RunFailedError, match=r"epoch\.end"):
        place.run(plain)
    check.feed_far(place, -2)  # an epoch of its own, in which the watermark of the first counts
    place.run(plain)
    check.validate(place)
