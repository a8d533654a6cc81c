"""Windows in real jobs, against DuckDB and against the harness."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import duckdb
import pytest

import holdfast as hf
from holdfast.errors import JobDefinitionError, StateMismatchError
from holdfast.testing import Harness
from spark.test_time import DELAY, NOON, SCHEMA, Row, edits, plain, source, write
from spark.windowed import Sums, SumsOfRecords
from spark.workplace import Memory, Workplace

TUMBLING = hf.windows.Tumbling("2 min", offset="30 s")
SLIDING = hf.windows.Sliding("2 min", every="45 s")
SESSION = hf.windows.Session("40 s")


def windowed(
    place: Workplace,
    windows: Any,
    process: hf.WindowProcess,
    out: Any,
    late_out: Any = None,
    **options: Any,
) -> Any:
    def pipeline(flow: hf.Flow) -> None:
        rows = flow.watermark(flow.source("edits", source(place)), "ts", delay=DELAY)
        keyed = flow.key_by(rows, "user").window(windows, **options)
        late: Any = "side" if late_out is not None else "drop"
        step = keyed.process("step", process, late=late)
        if late_out is None:  # with an operation in between, the pipeline runs in every epoch
            flow.sink("out", step.where("edits > 0"), out)
        else:
            flow.sink("out", step, out)
            flow.sink("late", step.side("late"), late_out)

    return pipeline


def by_harness(
    windows: Any, process: hf.WindowProcess, epochs: list[list[Row]], **options: Any
) -> Harness:
    harness = Harness(
        process, SCHEMA, key="user", event_time="ts", delay=DELAY, window=windows, **options
    )
    for rows in epochs:
        harness.push(*rows)
    harness.push()  # Spark lets the last watermark take effect
    return harness


def ask_duckdb(query: str, epochs: list[list[Row]], **values: Any) -> list[Any]:
    """A query over the edits, each with the watermark at which it was processed, and the one
    of the epoch before."""
    before = watermark = reached = NOON - timedelta(days=1)
    rows = []
    for epoch in epochs:
        rows += [(*row, watermark, before) for row in epoch]
        reached = max([reached, *(row[3] for row in epoch)])
        before, watermark = watermark, reached - DELAY
    with duckdb.connect() as database:
        database.execute("SET TimeZone='UTC'")
        database.execute(
            "CREATE TABLE edits (id bigint, user varchar, n bigint, ts timestamptz, "
            "watermark timestamptz, before timestamptz)"
        )
        database.executemany("INSERT INTO edits VALUES (?, ?, ?, ?, ?, ?)", rows)
        return database.execute(query, {"last": watermark, **values}).fetchall()


IN_WINDOWS = """
    WITH windows AS (
        SELECT make_timestamptz(start) AS start, make_timestamptz(start + $size) AS stop
        FROM (SELECT unnest(range($first, epoch_us(max(ts)) + 1, $every)) AS start FROM edits)
    ), placed AS (
        SELECT * FROM edits JOIN windows ON ts >= start AND ts < stop
    )
"""


def grid(windows: Any) -> dict[str, int]:
    """Values for the query: the length of windows, and a grid from long before the edits on."""
    long_ago = int((NOON - timedelta(days=1)).timestamp() * 1_000_000)
    first = long_ago - (long_ago - windows.offset) % windows.every
    return {"first": first, "every": windows.every, "size": windows.size}


def but_for_arrival(late: tuple[Any, ...], *, epoch: bool = False) -> tuple[Any, ...]:
    """A late record without the time of its arrival, and without its `epoch`."""
    return (*late[: -4 if epoch else -3], *late[-2:])


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(TUMBLING, id="tumbling", marks=pytest.mark.long),
        pytest.param(SLIDING, id="sliding"),
    ],
)
def test_windows_equal_duckdb_and_the_harness(
    place: Workplace, memory: Memory, windows: Any
) -> None:
    epochs = edits(600, late=0.05, seed=3)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    late_out, late_rows = memory("late")
    place.run(windowed(place, windows, Sums(), out, late_out))
    truth = ask_duckdb(
        IN_WINDOWS
        + """
        SELECT user, start, stop, 'on_time', count(*), sum(n)::bigint FROM placed
        WHERE stop > watermark AND stop <= $last GROUP BY ALL
        """,
        epochs,
        **grid(windows),
    )
    late = ask_duckdb(
        IN_WINDOWS
        + """
        SELECT id, user, n, ts FROM placed WHERE $last IS NOT NULL
        GROUP BY ALL HAVING bool_and(stop <= watermark)
        """,
        epochs,
        **grid(windows),
    )
    assert len(truth) > 100 and len(late) > 10
    assert plain(rows()) == plain(truth)
    assert plain([row[:4] for row in late_rows()]) == plain(late)
    harness = by_harness(windows, SumsOfRecords(), epochs)
    assert Counter(harness.output) == plain(rows())
    assert Counter(map(but_for_arrival, harness.side("late"))) == plain(
        [but_for_arrival(row) for row in late_rows()]
    )
    records = place.epochs()
    assert sum(record.late["step"] for record in records if record.late) == len(late)
    # What is over is gone: the users' last windows are all that is left.
    assert records[-1].state["step"].rows <= 12


def test_sessions_equal_duckdb_and_the_harness(place: Workplace, memory: Memory) -> None:
    epochs = edits(600, late=0, seed=5)
    write(place.path / "in", epochs)
    out, rows = memory("out")
    place.run(windowed(place, SESSION, SumsOfRecords(), out))
    truth = ask_duckdb(
        """
        WITH gaps AS (
            SELECT *, ts - lag(ts) OVER (PARTITION BY user ORDER BY ts) > to_microseconds($gap)
                AS begins FROM edits
        ), numbered AS (
            SELECT *, count(*) FILTER (begins)
                OVER (PARTITION BY user ORDER BY ts) AS session FROM gaps
        )
        SELECT user, min(ts), max(ts) + to_microseconds($gap) AS stop, 'on_time', count(*),
            sum(n)::bigint
        FROM numbered GROUP BY user, session HAVING stop <= $last
        """,
        epochs,
        gap=SESSION.gap,
    )
    assert len(truth) > 100
    assert plain(rows()) == plain(truth)
    assert Counter(by_harness(SESSION, Sums(), epochs).output) == plain(rows())


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(SLIDING, id="sliding", marks=pytest.mark.long),
        pytest.param(SESSION, id="session"),
    ],
)
def test_windows_survive_restarts(place: Workplace, memory: Memory, windows: Any) -> None:
    epochs = edits(600, late=0.05, seed=9)
    out, rows = memory("out")
    late_out, late_rows = memory("late")
    options = {"allowed_lateness": "20 min"}
    for part in range(3):
        write(place.path / "in", epochs[part * 4 : part * 4 + 4], part * 4)
        place.run(windowed(place, windows, Sums(), out, late_out, **options))
    # After each run an epoch without records lets the watermark take effect.
    harness = by_harness(windows, Sums(), epochs, **options)
    assert Counter(harness.output) == plain(rows())
    assert Counter(but_for_arrival(row, epoch=True) for row in harness.side("late")) == plain(
        [but_for_arrival(row, epoch=True) for row in late_rows()]
    )
    assert {row[3] for row in rows()} == {"on_time", "late"}
    assert late_rows()


def test_early_results_come_by_the_clock(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON), (1, "ann", 2, NOON)]])
    out, rows = memory("out")
    pipeline = windowed(place, TUMBLING, Sums(), out, early="1 s")
    for part in range(2):
        place.run(pipeline, max_epochs=4, checkpoint={"interval": "1 s"})
        # Once, although the clock asked more often: nothing has changed since.
        early = [row for row in rows() if row[0] == "ann" and row[3] == "early"]
        assert [row[4:] for row in early] == [(2, 3)]
        write(place.path / "in", [[(2, "bob", 4, NOON + timedelta(hours=1))]], part + 1)
    assert [row[3:] for row in rows() if row[0] == "ann"][1:] == [("on_time", 2, 3)]


def test_other_windows_are_refused_on_resume(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")
    place.run(windowed(place, hf.windows.Tumbling("2 min"), Sums(), out))
    place.run(windowed(place, hf.windows.Tumbling("120 s"), Sums(), out))
    for windows, options in (
        (hf.windows.Tumbling("1 min"), {}),
        (hf.windows.Tumbling("2 min"), {"allowed_lateness": "1 min"}),
    ):
        with pytest.raises(StateMismatchError, match="OPERATOR_CHANGED"):
            place.run(windowed(place, windows, Sums(), out, **options))


def test_what_is_refused_before_start(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")

    def keyed(flow: hf.Flow, watermark: bool = True) -> hf.KeyedStream:
        rows: Any = flow.source("edits", source(place))
        if watermark:
            rows = flow.watermark(rows, "ts", delay=DELAY)
        return flow.key_by(rows, "user")

    def without_watermark(flow: hf.Flow) -> None:
        step = keyed(flow, watermark=False).window(TUMBLING).process("step", Sums())
        flow.sink("out", step, out)

    def late_unread(flow: hf.Flow) -> None:
        flow.sink("out", keyed(flow).window(TUMBLING).process("step", Sums()), out)

    def without_window(flow: hf.Flow) -> None:
        process: Any = Sums()
        flow.sink("out", keyed(flow).process("step", process), out)

    def wrong_process(flow: hf.Flow) -> None:
        process: Any = Sums
        flow.sink("out", keyed(flow).window(TUMBLING).process("step", process), out)

    for pipeline, name in (
        (without_watermark, "EVENT_TIME_MISSING"),
        (late_unread, "SIDE_OUTPUT_NOT_READ"),
        (without_window, "WRONG_ARGUMENT"),
        (wrong_process, "WRONG_ARGUMENT"),
    ):
        with pytest.raises(JobDefinitionError, match=name):
            place.run(pipeline)
