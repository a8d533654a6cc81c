"""`.aggregate`, `.reduce`, `.rolling` and `flow.stateful` on Spark's own operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as f

import holdfast as hf
from holdfast.demo.edits import generate
from holdfast.errors import JobDefinitionError, StateMismatchError
from spark.processes import RunningTotal
from spark.workplace import Memory, Workplace, running_totals

SCHEMA = "user string, diff bigint"
ROWS = [(edit["user"], edit["diff"]) for edit in generate(2_000, users=30, seed=11)]


def source(flow: hf.Flow, per_epoch: int = 600) -> Any:
    return flow.source("edits", hf.sources.Collection(ROWS, SCHEMA, rows_per_epoch=per_epoch))


def last_by_key(rows: list[Any]) -> dict[Any, Any]:
    return {row[0]: row[1:] for row in rows}


def test_aggregate_and_reduce(place: Workplace, memory: Memory) -> None:
    aggregated, written = memory("aggregated")

    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(source(flow), "user")
        totals = keyed.aggregate("totals", total=f.sum("diff"), edits=f.count("*"))
        flow.sink("out", totals.where("edits > 0"), aggregated)

    place.run(pipeline)
    truth: dict[str, tuple[int, int]] = {}
    for user, diff in ROWS:
        total, edits = truth.get(user, (0, 0))
        truth[user] = total + diff, edits + 1
    assert last_by_key(written()) == truth
    # A key comes out once per epoch in which it changed.
    per_epoch = [len({user for user, _ in ROWS[at : at + 600]}) for at in range(0, 2_000, 600)]
    assert len(written()) == sum(per_epoch)
    assert place.epochs()[-1].state_rows == len(truth)

    reduced, written_reduced = memory("reduced")

    def reducing(flow: hf.Flow) -> None:
        flow.sink("out", flow.key_by(source(flow), "user").reduce("top", diff="max"), reduced)

    place.run(reducing, "reducing")
    largest = {user: (max(d for u, d in ROWS if u == user),) for user in truth}
    assert last_by_key(written_reduced()) == largest


def test_rolling_has_a_row_per_record(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(source(flow), "user")
        flow.sink("out", keyed.rolling("totals", total=f.sum("diff")), sink)

    place.run(pipeline)
    assert len(written()) == len(ROWS)
    assert last_by_key(written()) == last_by_key(running_totals(ROWS))
    assert Counter(written()) == Counter(running_totals(ROWS))


def test_named_stateful_operator_before_a_process_step(
    place: Workplace, memory: Memory
) -> None:
    sink, written = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        unique = flow.stateful("unique", source(flow).dropDuplicates(["user", "diff"]))
        flow.sink("out", flow.key_by(unique, "user").process("sum", RunningTotal()), sink)

    place.run(pipeline)
    unique = list(dict.fromkeys(ROWS))
    assert len(written()) == len(unique)
    truth: Counter[str] = Counter()
    for user, diff in unique:
        truth[user] += diff
    assert {user: total for user, (total,) in last_by_key(written()).items()} == truth


def test_process_step_before_an_aggregation(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        totals = flow.key_by(source(flow), "user").process("sum", RunningTotal())
        highest = flow.key_by(totals, "user").aggregate("highest", highest=f.max("total"))
        flow.sink("out", highest, sink)

    place.run(pipeline)
    truth: dict[str, int] = {}
    for user, total in running_totals(ROWS):
        truth[user] = max(total, truth.get(user, total))
    assert {user: high for user, (high,) in last_by_key(written()).items()} == truth


def refused(place: Workplace, pipeline: Any) -> JobDefinitionError:
    with pytest.raises(JobDefinitionError) as caught:
        place.run(pipeline)
    assert caught.value.fix
    return caught.value


def test_unnamed_stateful_operator_is_refused(place: Workplace, memory: Memory) -> None:
    sink, _ = memory("out")

    def into_sink(flow: hf.Flow) -> None:
        flow.sink("out", source(flow).groupBy("user").sum("diff"), sink)

    def into_step(flow: hf.Flow) -> None:
        unique = source(flow).dropDuplicates(["user"])
        flow.sink("out", flow.key_by(unique, "user").process("sum", RunningTotal()), sink)

    for pipeline, operator in ((into_sink, "Aggregate"), (into_step, "Deduplicate")):
        error = refused(place, pipeline)
        assert error.name == "STATEFUL_STEP_UNNAMED"
        assert operator in error.message


def test_one_name_for_two_operators_is_refused(place: Workplace, memory: Memory) -> None:
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        both = source(flow).dropDuplicates(["user"]).groupBy("user").count()
        flow.sink("out", flow.stateful("both", both), sink)

    error = refused(place, pipeline)
    assert error.name == "STATEFUL_STEP_UNCLEAR"
    assert "has 2" in error.message


def test_step_after_an_aggregation_is_refused(place: Workplace, memory: Memory) -> None:
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        totals = flow.key_by(source(flow), "user").aggregate("totals", diff=f.sum("diff"))
        flow.sink("out", flow.key_by(totals, "user").process("sum", RunningTotal()), sink)

    assert refused(place, pipeline).name == "AGGREGATION_NOT_LAST"


def test_rolling_beside_aggregate_is_refused(place: Workplace, memory: Memory) -> None:
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        keyed = flow.key_by(source(flow), "user")
        flow.sink("out", keyed.aggregate("totals", diff=f.sum("diff")), sink)
        flow.sink("all", keyed.rolling("rolling", diff=f.sum("diff")), sink)

    assert refused(place, pipeline).name == "NOT_SUPPORTED"


def test_memory_backend_keeps_native_state_only(place: Workplace, memory: Memory) -> None:
    rows = [(f"user-{i % 7}", i) for i in range(100)]
    out, found = memory("out")

    def native(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.Collection(rows, "user string, diff bigint"))
        totals = flow.key_by(edits, "user").aggregate("totals", total=f.sum("diff"))
        flow.sink("out", totals, out)

    def process(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.Collection(rows, "user string, diff bigint"))
        flow.sink("out", flow.key_by(edits, "user").process("totals", RunningTotal()), out)

    in_memory = {"backend": "memory"}
    place.run(native, checkpoint=in_memory)
    truth = {f"user-{k}": sum(range(k, 100, 7)) for k in range(7)}
    assert dict(found()) == truth
    with pytest.raises(StateMismatchError, match="cannot rescale state of its in-memory store"):
        place.run(native, checkpoint=in_memory, parallelism=3)
    with pytest.raises(StateMismatchError, match="BACKEND_DIFFERS"):
        place.run(native)
    with pytest.raises(JobDefinitionError, match="Spark's Python state needs RocksDB"):
        place.run(process, "other", checkpoint=in_memory)
