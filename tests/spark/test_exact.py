"""Balances and every output row against an independent computation."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.demo.edits import generate
from holdfast.engine.session import driver_session
from holdfast.state.key_groups import spark_label
from holdfast.storage.file_sink_log import committed_files
from spark.processes import (
    BatchedTotal,
    CountPerTotal,
    EveryKind,
    LargeAndSmall,
    RunningTotal,
    TotalWithParity,
    TwoKeyTotal,
)
from spark.workplace import Memory, Workplace, running_totals

SCHEMA = "user string, diff bigint"


def edits(count: int, users: int = 40, seed: int = 1) -> list[tuple[Any, int]]:
    return [(edit["user"], edit["diff"]) for edit in generate(count, users=users, seed=seed)]


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 2, 5])
@pytest.mark.parametrize("process", [RunningTotal, BatchedTotal])
def test_every_row_and_every_balance(
    place: Workplace, memory: Memory, parallelism: int, process: type[hf.KeyedProcess]
) -> None:
    sink, written = memory("out")
    rows = edits(3_000)

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=700)
        balances = flow.key_by(flow.source("edits", source), "user").process("sum", process())
        flow.sink("out", balances, sink)

    place.run(pipeline, parallelism=parallelism)
    expected = running_totals(rows)
    assert Counter(written()) == Counter(expected)
    for user in {user for user, _ in rows}:
        # Within a key the order of the input is kept.
        assert [row for row in written() if row[0] == user] == [
            row for row in expected if row[0] == user
        ]
    epochs = place.epochs()
    assert [epoch.input_rows for epoch in epochs] == [700, 700, 700, 700, 200]
    assert sum(epoch.output_rows for epoch in epochs) == 3_000
    assert epochs[-1].state_rows == len({user for user, _ in rows})
    assert epochs[-1].state_bytes > 0
    assert epochs[-1].checkpoint_bytes > 0


def test_key_groups_are_spread_evenly(place: Workplace) -> None:
    """Spark's hash of a key group's label is the key group's number."""
    session = driver_session(place.runtime())
    labels = [(group, spark_label(group)) for group in range(300)]
    frame = session.createDataFrame(labels, "number int, kg int")
    assert frame.where("hash(kg) != number").count() == 0


@pytest.mark.parametrize("keys", [("wiki", "user"), ("user", "wiki")])
def test_composite_keys_in_both_orders(
    place: Workplace, memory: Memory, keys: tuple[str, str]
) -> None:
    sink, written = memory("out")
    draw = random.Random(5)
    names = ["", "Zoë", "太郎", "🦀", "a\tb\nc", "quote'\"`", None]
    rows = [
        (draw.choice(["en", "de", None]), draw.choice(names), draw.randrange(-50, 50))
        for _ in range(2_000)
    ]

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(
            rows, "wiki string, user string, diff bigint", rows_per_epoch=900
        )
        stream = flow.key_by(flow.source("edits", source), *keys)
        flow.sink("out", stream.process("sum", TwoKeyTotal()), sink)

    place.run(pipeline)
    expected = [
        (wiki, user, total, repr((wiki, user) if keys[0] == "wiki" else (user, wiki)))
        for wiki, user, total in running_totals(rows, keys=2)
    ]
    assert Counter(written()) == Counter(expected)
    assert place.epochs()[-1].state_rows == len({row[:2] for row in rows})


def test_null_key(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    rows = [(None, 5), ("", 1), (None, -7), ("", 2), ("None", 3)]

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=2)
        stream = flow.key_by(flow.source("edits", source), "user")
        flow.sink("out", stream.process("sum", RunningTotal()), sink)

    place.run(pipeline)
    assert Counter(written()) == Counter(running_totals(rows))


def test_many_keys_in_one_batch_and_a_hot_key(place: Workplace, memory: Memory) -> None:
    """10k keys at once, half of all records on one of them, a cache that holds a part."""
    sink, written = memory("out")
    draw = random.Random(7)
    rows = [
        ("hot" if draw.random() < 0.5 else f"user {draw.randrange(10_000)}", n)
        for n in range(30_000)
    ] + [(f"user {n}", 1) for n in range(10_000)]

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=20_000)
        stream = flow.key_by(flow.source("edits", source), "user")
        flow.sink("out", stream.process("sum", RunningTotal()), sink)

    place.run(pipeline, heap_limit="100 KiB")
    assert Counter(written()) == Counter(running_totals(rows))
    assert place.epochs()[-1].state_rows == 10_001


def test_every_kind_of_state(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    rows = [
        (edit["user"], edit["page"], edit["diff"]) for edit in generate(600, users=12, seed=3)
    ]

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(
            rows, "user string, page string, diff bigint", rows_per_epoch=150
        )
        stream = flow.key_by(flow.source("edits", source), "user")
        flow.sink("out", stream.process("all", EveryKind()), sink)

    place.run(pipeline)
    by_user: dict[str, list[tuple[str, int]]] = {}
    expected = []
    for user, page, diff in rows:
        seen = by_user.setdefault(user, [])
        seen.append((page, diff))
        pages = [page for page, _ in seen]
        diffs = [diff for _, diff in seen]
        per_page: dict[str, int] = {}
        for name, change in seen:
            per_page[name] = per_page.get(name, 0) + change
        longest = max(pages, key=len)
        expected.append((user, sum(diffs), pages, per_page, longest, sum(diffs) / len(diffs)))

    def by_place(row: tuple[Any, ...]) -> tuple[str, int]:
        return row[0], len(row[2])

    assert sorted(written(), key=by_place) == sorted(expected, key=by_place)


def test_several_sinks_side_outputs_and_branches(place: Workplace, memory: Memory) -> None:
    """One trunk, four ways out of it; each sink sees every epoch once."""
    main, written = memory("main")
    large, written_large = memory("large")
    branch, written_branch = memory("branch")
    files = place.path / "out"
    rows = edits(2_000)

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=600)
        counted = flow.key_by(flow.source("edits", source), "user").process(
            "count", LargeAndSmall()
        )
        flow.sink("main", counted, main)
        flow.sink("large", counted.side("large"), large)
        flow.sink("branch", counted.where("seen = 3").select("user"), branch)
        flow.sink("files", counted, hf.sinks.Files(files))

    place.run(pipeline)
    identity = JobDirectory(place.runtime().storage, "job").load()
    assert identity is not None
    sinks = ("branch", "files", "large", "main")
    assert identity.edges == (*(("count", sink) for sink in sinks), ("edits", "count"))
    counts: Counter[Any] = Counter()
    expected = []
    for user, _ in rows:
        counts[user] += 1
        expected.append((user, counts[user]))
        counts[user] %= 3
    assert Counter(written()) == Counter(expected)
    assert Counter(written_large()) == Counter(row for row in rows if abs(row[1]) > 100)
    assert Counter(written_branch()) == Counter((user,) for user, n in expected if n == 3)
    query = f"select user, seen from read_parquet('{files}/*.parquet')"
    found = duckdb.connect().execute(query).fetchall()
    assert Counter(found) == Counter(expected)
    # A key whose only state was cleared is gone.
    assert place.epochs()[-1].state_rows == sum(1 for n in counts.values() if n)
    assert len(committed_files(files)) >= 4


@pytest.mark.parametrize("first_is_read", [False, True])
def test_chained_process_steps(place: Workplace, memory: Memory, first_is_read: bool) -> None:
    sink, written = memory("out")
    between, written_between = memory("between")
    rows = edits(1_500)

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=400)
        totals = flow.key_by(flow.source("edits", source), "user").process(
            "totals", TotalWithParity()
        )
        counts = flow.key_by(totals, "odd").process("counts", CountPerTotal())
        flow.sink("out", counts, sink)
        if first_is_read:
            flow.sink("between", totals, between)

    place.run(pipeline)
    totals = [(user, total, total % 2 == 1) for user, total in running_totals(rows)]
    sizes = Counter(odd for _, _, odd in totals)
    expected = [(odd, n + 1) for odd, size in sizes.items() for n in range(size)]
    assert Counter(written()) == Counter(expected)
    if first_is_read:
        assert Counter(written_between()) == Counter(totals)


def test_user_code_between_two_steps(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    rows = edits(800)

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, SCHEMA, rows_per_epoch=300)
        totals = flow.key_by(flow.source("edits", source), "user").process(
            "totals", RunningTotal()
        )
        parity = totals.selectExpr("pmod(total, 2) = 1 as odd").where("odd")
        flow.sink("out", flow.key_by(parity, "odd").process("counts", CountPerTotal()), sink)

    place.run(pipeline)
    odd = sum(1 for _, total in running_totals(rows) if total % 2 == 1)
    assert Counter(written()) == Counter((True, n + 1) for n in range(odd))


def test_two_sources_two_trunks(place: Workplace, memory: Memory) -> None:
    left, written_left = memory("left")
    right, written_right = memory("right")
    raw, written_raw = memory("raw")
    one, two = edits(500, seed=1), edits(700, seed=2)

    def pipeline(flow: hf.Flow) -> None:
        first = flow.source("one", hf.sources.Collection(one, SCHEMA, rows_per_epoch=200))
        second = flow.source("two", hf.sources.Collection(two, SCHEMA, rows_per_epoch=100))
        flow.sink("left", flow.key_by(first, "user").process("a", RunningTotal()), left)
        flow.sink("right", flow.key_by(second, "user").process("b", RunningTotal()), right)
        flow.sink("raw", second.where("diff > 0"), raw)

    place.run(pipeline)
    assert Counter(written_left()) == Counter(running_totals(one))
    assert Counter(written_right()) == Counter(running_totals(two))
    assert Counter(written_raw()) == Counter(row for row in two if row[1] > 0)


def test_union_of_sources_into_one_step(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    one, two = edits(500, seed=1), edits(500, seed=2)

    def pipeline(flow: hf.Flow) -> None:
        first = flow.source("one", hf.sources.Collection(one, SCHEMA, rows_per_epoch=200))
        second = flow.source("two", hf.sources.Collection(two, SCHEMA, rows_per_epoch=150))
        both = flow.key_by(first.union(second), "user")
        flow.sink("out", both.process("sum", RunningTotal()), sink)

    place.run(pipeline)
    last: dict[Any, int] = {}
    for user, total in written():
        last[user] = total
    truth: Counter[Any] = Counter()
    for user, diff in one + two:
        truth[user] += diff
    assert len(written()) == 1_000
    assert last == dict(truth)
