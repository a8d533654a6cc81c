"""``keyed.window(…).aggregate``: windows in the JVM, against DuckDB."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import functions as f

import holdfast as hf
from holdfast.errors import JobDefinitionError, StateMismatchError
from spark.test_time import DELAY, NOON, edits, source, write
from spark.test_windows import IN_WINDOWS, SESSION, SLIDING, TUMBLING, ask_duckdb, grid
from spark.workplace import Memory, Workplace


def native(place: Workplace, windows: Any, out: Any, **options: Any) -> Any:
    def pipeline(flow: hf.Flow) -> None:
        rows = flow.watermark(flow.source("edits", source(place)), "ts", delay=DELAY)
        step = (
            flow.key_by(rows, "user")
            .window(windows, **options)
            .aggregate("step", edits=f.count("*"), total=f.sum("n"))
        )
        flow.sink("out", step, out)

    return pipeline


def latest(rows: list[Any]) -> dict[Any, Any]:
    """The last row of each window."""
    return {
        (user, start.replace(tzinfo=UTC), stop.replace(tzinfo=UTC)): tuple(computed)
        for user, start, stop, *computed in rows
    }


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(TUMBLING, id="tumbling", marks=pytest.mark.long),
        pytest.param(SLIDING, id="sliding"),
    ],
)
def test_native_windows_equal_duckdb_across_restarts(
    place: Workplace, memory: Memory, windows: Any
) -> None:
    epochs = edits(600, late=0.05, seed=7)
    out, rows = memory("out")
    for part in range(2):
        write(place.path / "in", epochs[part * 6 : part * 6 + 6], part * 6)
        place.run(native(place, windows, out))
    # After each run an epoch without records lets the watermark take effect.
    processed = [*epochs[:6], [], *epochs[6:], []]

    def ask(query: str) -> Any:
        return ask_duckdb(IN_WINDOWS + query, processed, **grid(windows))

    # Spark drops what was late in the epoch before already.
    truth = ask(
        """
        SELECT user, start, stop, count(*), sum(n)::bigint FROM placed
        WHERE stop > before AND $last IS NOT NULL GROUP BY ALL
        """
    )
    assert len(truth) > 100
    assert latest(rows()) == latest(truth)
    # Each changed window comes once per epoch; and so does a late one into Spark's count.
    [(emitted, dropped, still_open)] = ask(
        """
        SELECT count(DISTINCT (user, start, watermark)) FILTER (stop > before),
            count(DISTINCT (user, start, watermark)) FILTER (stop <= before),
            count(DISTINCT (user, start)) FILTER (stop > before AND stop > $last) FROM placed
        """
    )
    records = place.epochs()
    assert len(rows()) == emitted
    assert sum(sum(record.late.values()) for record in records) == dropped > 10
    # Windows that are over leave the state.
    assert records[-1].state["step"].rows == still_open
    assert max(record.state["step"].rows for record in records) < len(truth) / 3


def test_operations_after_native_windows(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON), (1, "bob", 2, NOON), (2, "bob", 3, NOON)]])
    out, rows = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        edits = flow.watermark(flow.source("edits", source(place)), "ts", delay=DELAY)
        step = flow.key_by(edits, "user").window(TUMBLING).aggregate("step", n=f.count("*"))
        minutes = f.timestamp_diff("MINUTE", "window_start", "window_end").alias("minutes")
        flow.sink("out", step.where("n > 1").select("user", minutes, "n"), out)

    place.run(pipeline)
    assert [tuple(row) for row in rows()] == [("bob", 2, 2)]


def test_what_spark_cannot_do_is_refused(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")
    for windows, options, reason in (
        (TUMBLING, {"allowed_lateness": "1 min"}, "delay of the watermark"),
        (TUMBLING, {"early": "1 min"}, "in every epoch already"),
        (SESSION, {}, "update mode"),
    ):
        with pytest.raises(JobDefinitionError, match=f"(?s)NOT_SUPPORTED.*{reason}"):
            place.run(native(place, windows, out, **options))

    def without_watermark(flow: hf.Flow) -> None:
        keyed = flow.key_by(flow.source("edits", source(place)), "user")
        flow.sink("out", keyed.window(TUMBLING).aggregate("step", n=f.count("*")), out)

    def without_column(flow: hf.Flow) -> None:
        keyed = flow.key_by(flow.source("edits", source(place)), "user")
        flow.sink("out", keyed.window(TUMBLING).aggregate("step"), out)

    for pipeline, name in (
        (without_watermark, "EVENT_TIME_MISSING"),
        (without_column, "INVALID_OPTION"),
    ):
        with pytest.raises(JobDefinitionError, match=name):
            place.run(pipeline)


def test_other_native_windows_are_refused_on_resume(place: Workplace, memory: Memory) -> None:
    write(place.path / "in", [[(0, "ann", 1, NOON)]])
    out, _ = memory("out")
    place.run(native(place, hf.windows.Tumbling("2 min"), out))
    # Spark would go on, with windows of both lengths mixed.
    with pytest.raises(StateMismatchError, match="OPERATOR_CHANGED"):
        place.run(native(place, hf.windows.Tumbling("1 min"), out))
