"""Pipelines are followed without Spark: what they declare is found, and no JVM is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast as hf
from holdfast.control.app import load_job
from holdfast.control.trace import Trace, trace

SCHEMA = "user string, diff bigint, ts timestamp"
EXAMPLES = Path(__file__).parents[2] / "examples"


class Forgetful(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0, ttl="1 h")
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: Any) -> Any:
        yield edit.user, self.total.value


class Keeper(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"
    sides = {"odd": "user string"}

    def process(self, edit: Any, ctx: Any) -> Any:
        yield edit.user, self.total.value


class Timed(Keeper):
    def on_timer(self, timer: Any, ctx: Any) -> Any:
        return None


class Counts(hf.WindowProcess):
    accumulator = "bigint"
    output = "user string, n bigint"

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, record: Any) -> int:
        return accumulator + 1

    def result(self, window: Any, accumulator: int, ctx: Any) -> Any:
        yield ctx.key, accumulator


def traced(body: Callable[[hf.Flow, Any], Any]) -> Trace:
    """A pipeline from one source through `body` to one sink."""
    job = hf.Job("traced")

    @job.pipeline
    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog("log", schema=SCHEMA))
        flow.sink("out", body(flow, edits), hf.sinks.Files("out"))

    return trace(job)


def forgets(body: Callable[[hf.Flow, Any], Any]) -> bool:
    found = traced(body)
    assert found.complete, found
    [step] = found.steps
    return step.forgets


def watermarked(flow: hf.Flow, edits: Any) -> Any:
    return flow.watermark(edits, "ts", delay="10 s")


def no_context() -> bool:
    pyspark = sys.modules["pyspark"]
    sessions = sys.modules["pyspark.sql"].SparkSession
    return (
        pyspark.SparkContext._active_spark_context is None
        and pyspark.SparkContext._gateway is None
        and sessions._instantiatedSession is None
        and sessions._activeSession is None
    )


class TestSteps:
    @pytest.mark.parametrize(
        ("process", "wanted"), [(Forgetful, True), (Keeper, False), (Timed, True)]
    )
    def test_process(self, process: type[hf.KeyedProcess], wanted: bool) -> None:
        found = forgets(lambda flow, edits: flow.key_by(edits, "user").process("s", process()))
        assert found is wanted

    def test_window(self) -> None:
        found = traced(
            lambda flow, edits: (
                flow.key_by(watermarked(flow, edits), "user")
                .window(hf.windows.Tumbling("5 min"))
                .process("s", Counts())
                .side("late")
            )
        )
        assert [(step.kind, step.forgets) for step in found.steps] == [("window", True)]
        assert [mark.delay for mark in found.watermarks] == [timedelta(seconds=10)]

    def test_native_aggregation_forgets_by_event_time_alone(self) -> None:
        def by(*keys: str, watermark: bool) -> bool:
            return forgets(
                lambda flow, edits: flow.key_by(
                    watermarked(flow, edits) if watermark else edits, *keys
                ).reduce("s", diff="sum")
            )

        assert not by("user", watermark=False)
        assert not by("user", watermark=True)
        assert by("user", "ts", watermark=True)

    def test_native_window(self) -> None:
        assert forgets(
            lambda flow, edits: (
                flow.key_by(watermarked(flow, edits), "user")
                .window(hf.windows.Tumbling("5 min"))
                .aggregate("s", n=cast(Any, "count"))
            )
        )

    @pytest.mark.parametrize("watermark", [True, False])
    def test_named_operator(self, watermark: bool) -> None:
        assert (
            forgets(
                lambda flow, edits: flow.stateful(
                    "s",
                    (watermarked(flow, edits) if watermark else edits).dropDuplicates(["user"]),
                )
            )
            is watermark
        )

    def test_chained_steps_and_sides(self) -> None:
        def body(flow: hf.Flow, edits: Any) -> Any:
            first = flow.key_by(edits, "user").process("first", Keeper())
            flow.sink("odd", first.side("odd"), hf.sinks.Console())
            return flow.key_by(first, "user").process("second", Forgetful())

        found = traced(body)
        assert found.complete
        assert [step.uid for step in found.steps] == ["first", "second"]
        assert list(found.sinks) == ["odd", "out"]


class TestDataFrames:
    @pytest.mark.parametrize(
        "body",
        [
            lambda f, e: e.filter(e.diff > 3).withColumn("w", f.window("ts", "5 minutes")),
            lambda f, e: e.where((e["diff"] > 3) & e.user.isNull() | f.col("user").isin("a")),
            lambda f, e: e.select(
                "*", f.when(f.col("a") > 1, 2).otherwise(f.lit(0)).alias("q")
            ),
            lambda f, e: e.join(e.groupBy("user").agg(f.sum("diff")), "user").na.fill(0),
            lambda f, e: e.select(f.transform("a", lambda x: x + 1), f.expr("a + b")),
            lambda f, e: e.select(f.udf(lambda x: x, "string")("user")),
            lambda f, e: e.select([f.col(name) for name in e.columns]),
            lambda f, e: e.transform(lambda frame: frame.selectExpr("user")),
            lambda f, e: e.withColumns({"a": f.lit(1)}).drop(e.a),
            lambda f, e: e if e.count() > 3 else e.limit(int(e.first()["n"])),
        ],
    )
    def test_any_operation_is_followed(self, body: Callable[[Any, Any], Any]) -> None:
        from pyspark.sql import functions as f

        found = traced(lambda flow, edits: body(f, edits))
        assert found.complete, found.lost_at or found.refused
        assert list(found.sinks) == ["out"]
        assert no_context()

    def test_a_watermark_of_spark_counts(self) -> None:
        found = traced(lambda flow, edits: edits.withWatermark("ts", "0 seconds"))
        [mark] = found.watermarks
        assert (mark.column, mark.delay) == ("ts", timedelta(0))
        assert Path(__file__).name in mark.place

    def test_an_interval_that_spark_alone_can_read(self) -> None:
        found = traced(lambda flow, edits: edits.withWatermark("ts", "1 minute 30 seconds"))
        assert found.complete
        assert found.watermarks == ()

    def test_code_that_cannot_be_followed(self) -> None:
        found = traced(lambda flow, edits: dict[str, int]()["nothing"])
        assert not found.complete
        assert "KeyError" in found.lost_at
        assert Path(__file__).name in found.lost_at

    def test_nothing_of_the_stand_in_stays_after_an_error(self) -> None:
        from pyspark.sql import functions as f

        traced(lambda flow, edits: [edits.select(f.udf(lambda x: x)("user")), 1 / 0])
        assert no_context()


class TestRefused:
    """What the Flow refuses is found here as well."""

    @pytest.mark.parametrize(
        ("name", "body"),
        [
            ("KEY_NOT_FOUND", lambda flow, edits: flow.key_by(edits, "usr")),
            (
                "DUPLICATE_UID",
                lambda flow, edits: flow.key_by(edits, "user").process("edits", Keeper()),
            ),
            (
                "EVENT_TIME_MISSING",
                lambda flow, edits: (
                    flow.key_by(edits, "user")
                    .window(hf.windows.Tumbling("1 min"))
                    .process("s", Counts())
                ),
            ),
            (
                "SIDE_OUTPUT_NOT_FOUND",
                lambda flow, edits: flow.key_by(edits, "user").process("s", Keeper()).side("x"),
            ),
        ],
    )
    def test_by_name(self, name: str, body: Callable[[hf.Flow, Any], Any]) -> None:
        found = traced(body)
        assert found.refused is not None
        assert found.refused.name == name

    def test_a_process_on_a_backend_that_cannot_keep_it(self) -> None:
        job = hf.Job("wiki", checkpoint=hf.CheckpointConfig(backend="memory"))

        @job.pipeline
        def pipeline(flow: hf.Flow) -> None:
            edits = flow.source(
                "edits", hf.sources.FileLog("edits", "user string, diff bigint")
            )
            steps = flow.key_by(edits, "user").process("s", Keeper())
            flow.sink("out", steps, hf.sinks.Files("out"))

        found = trace(job)
        assert found.refused is not None
        assert found.refused.name == "NOT_SUPPORTED"

    def test_late_records_that_are_dropped_need_no_reader(self) -> None:
        assert traced(
            lambda flow, edits: flow.key_by(watermarked(flow, edits), "user").process(
                "s", Keeper(), late="drop"
            )
        ).complete

    def test_a_job_without_a_pipeline(self) -> None:
        found = trace(hf.Job("empty"))
        assert found.refused is not None
        assert found.refused.name == "PIPELINE_MISSING"

    def test_columns_that_nobody_knows_are_let_pass(self) -> None:
        assert traced(
            lambda flow, edits: flow.key_by(edits.selectExpr("f(user) AS x"), "x").process(
                "s", Keeper()
            )
        ).complete


@pytest.mark.parametrize(
    ("example", "job", "steps"),
    [
        ("wiki_diffs", None, {"balances": False}),
        ("page_watch", None, {"watch": False}),
        ("hashtags", None, {"counts": True}),
        ("two_speeds", "totals-columns", {"totals": False}),
        ("two_speeds", "totals-native", {"totals": False}),
    ],
)
def test_examples(
    example: str, job: str | None, steps: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("PYTHONPATH", "")
    found = trace(load_job(EXAMPLES / f"{example}.py", job))
    assert found.complete
    assert {step.uid: step.forgets for step in found.steps} == steps
