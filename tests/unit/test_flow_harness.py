"""Whole flows in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.testing import FlowHarness
from holdfast.testing.strategies import SCHEMA, START, epochs

Backend = Literal["heap", "rocksdb"]


class Totals(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint, bot boolean"
    sides = {"negative": "user string, diff bigint"}

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[Any]:
        self.total.value += edit.diff
        if edit.diff < 0:
            yield hf.to("negative", edit.user, edit.diff)
        yield edit.user, self.total.value, edit.bot


class PerKind(hf.KeyedProcess):
    seen = hf.ValueState("bigint", default=0)
    output = "bot boolean, seen bigint"

    def process(self, row: Any, ctx: hf.Context) -> Iterator[Any]:
        if row.total == 666:
            raise ValueError("the number")
        self.seen.value += 1
        yield row.bot, self.seen.value


def chained(flow: hf.Flow) -> None:
    edits = flow.source("edits", hf.sources.Collection([], SCHEMA))
    totals = flow.key_by(edits, "user").process("totals", Totals())
    kinds = flow.key_by(totals, "bot").process("kinds", PerKind())
    flow.sink("totals-out", totals, hf.sinks.Discard())
    flow.sink("negative-out", totals.side("negative"), hf.sinks.Discard())
    flow.sink("kinds-out", kinds, hf.sinks.Discard())


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_steps_and_sinks_of_random_edits(backend: Backend) -> None:
    @given(epochs(nulls=True))
    def check(parts: list[list[dict[str, Any]]]) -> None:
        harness = FlowHarness(chained, backend=backend)
        totals: Counter[Any] = Counter()
        kinds: Counter[bool] = Counter()
        for number, rows in enumerate(parts):
            harness.push("edits", *rows)
            for row in rows:
                totals[row["user"]] += row["diff"]
                kinds[row["bot"]] += 1
            if number % 3 == 2:
                harness.crash()
        rows = [row for part in parts for row in part]
        assert len(harness.output("totals-out")) == len(rows)
        negative = Counter((row["user"], row["diff"]) for row in rows if row["diff"] < 0)
        assert Counter(harness.output("negative-out")) == negative
        for user in {row["user"] for row in rows}:
            assert harness.state("totals", user) == {"total": totals[user]}
        assert Counter(bot for bot, _ in harness.output("kinds-out")) == kinds

    check()


def edit(user: str, diff: int, ts: datetime = START) -> dict[str, Any]:
    return {"user": user, "page": "p", "diff": diff, "ts": ts, "bot": False, "comment": None}


def test_failed_epoch_changes_no_step() -> None:
    harness = FlowHarness(chained)
    harness.push("edits", edit("ann", 600))
    kept = harness.snapshot()
    with pytest.raises(HoldfastError, match="the number"):
        harness.push("edits", edit("ann", 66))
    assert harness.state("totals", "ann") == {"total": 600}
    assert harness.output("kinds-out") == [(False, 1)]
    harness.push("edits", edit("ann", 1))
    harness.restore(kept)
    harness.push("edits", edit("ann", 2))
    assert harness.output("totals-out")[-1] == ("ann", 602, False)


class Late(hf.KeyedProcess):
    output = "user string, watermark timestamp"

    def process(self, row: Any, ctx: hf.Context) -> Iterator[Any]:
        yield row.user, ctx.watermark


@pytest.mark.parametrize("policy", ["min", "max"])
def test_watermarks_of_two_sources(policy: Literal["min", "max"]) -> None:
    job = hf.Job("two", watermark_policy=policy)

    @job.pipeline
    def pipeline(flow: hf.Flow) -> None:
        frames = [
            flow.watermark(
                flow.source(uid, hf.sources.Collection([], "user string, ts timestamp")),
                "ts",
                delay="10 s",
            )
            for uid in ("a", "b")
        ]
        step = flow.key_by(frames[0].union(frames[1]), "user").process("late", Late())
        flow.sink("out", step, hf.sinks.Discard())
        flow.sink("late-out", step.side("late"), hf.sinks.Discard())

    harness = FlowHarness(job)
    hour = START + timedelta(hours=1)
    harness.push("a", ("ann", hour))
    assert harness.watermark == (None if policy == "min" else hour - timedelta(seconds=10))
    harness.push_all({"b": [("bob", START)]})
    late = [("bob", START)] if policy == "max" else []
    assert [row[:2] for row in harness.output("late-out")] == late
    assert harness.watermark == (hour if policy == "max" else START) - timedelta(seconds=10)


@pytest.mark.parametrize("wrong", ["operation", "native", "source"])
def test_what_needs_spark_is_refused(wrong: str) -> None:
    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.Collection([], SCHEMA))
        if wrong == "operation":
            edits = edits.filter("diff > 0")  # type: ignore[assignment]
        if wrong == "native":
            flow.stateful("once", edits)
        flow.sink("out", edits, hf.sinks.Discard())

    with pytest.raises(JobDefinitionError) as caught:
        FlowHarness(pipeline).push("other", ("x",))
    assert caught.value.name == ("SOURCE_NOT_FOUND" if wrong == "source" else "NOT_SUPPORTED")
