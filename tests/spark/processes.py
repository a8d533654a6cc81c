"""The process classes that the Spark tests run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import holdfast as hf


class RunningTotal(hf.KeyedProcess):
    """The job of the README: one output row per edit, with the balance after it."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


class BatchedTotal(hf.KeyedProcess):
    """The same on Arrow columns."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process_batch(self, keys: Sequence[Any], table: pa.Table, ctx: hf.Context) -> pa.Table:
        totals = dict(zip(keys, self.total.get_many(keys), strict=True))
        running = []
        for key, diff in zip(keys, table.column("diff").to_pylist(), strict=True):
            totals[key] += diff
            running.append(totals[key])
        self.total.put_many(totals.keys(), totals.values())
        return pa.table({"user": table.column("user"), "total": pa.array(running, pa.int64())})


class TwoKeyTotal(hf.KeyedProcess):
    """Keyed by two columns, in either order."""

    total = hf.ValueState("bigint", default=0)
    output = "wiki string, user string, total bigint, key string"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        yield edit.wiki, edit.user, self.total.value, repr(ctx.key)


class LargeAndSmall(hf.KeyedProcess):
    """A side output, and a counter that is cleared."""

    seen = hf.ValueState("bigint", default=0)
    output = "user string, seen bigint"
    sides = {"large": "user string, diff bigint"}

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        if abs(edit.diff) > 100:
            yield hf.to("large", edit.user, edit.diff)
        self.seen.value += 1
        yield edit.user, self.seen.value
        if self.seen.value == 3:
            self.seen.clear()


class CountPerTotal(hf.KeyedProcess):
    """A second step: how many rows of the first one there were per parity of the total."""

    count = hf.ValueState("bigint", default=0)
    output = "odd boolean, count bigint"

    def process(self, row: Any, ctx: hf.Context) -> Iterable[Any]:
        self.count.value += 1
        yield row.odd, self.count.value


class TotalWithParity(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint, odd boolean"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        yield edit.user, self.total.value, self.total.value % 2 == 1


class EveryKind(hf.KeyedProcess):
    """All kinds of state in one step."""

    total = hf.ValueState("bigint", default=0)
    pages = hf.ListState("string")
    per_page = hf.MapState("string", "bigint")
    longest = hf.ReducingState("string", lambda a, b: b if len(b) > len(a) else a)
    mean = hf.AggregatingState(
        "total double, n bigint",
        create=lambda: (0.0, 0),
        add=lambda acc, x: (acc[0] + x, acc[1] + 1),
        result=lambda acc: acc.total / acc.n,
    )
    output = (
        "user string, total bigint, pages array<string>, per_page map<string,bigint>, "
        "longest string, mean double"
    )

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        self.pages.add(edit.page)
        self.per_page[edit.page] = self.per_page.get(edit.page, 0) + edit.diff
        self.longest.add(edit.page)
        self.mean.add(edit.diff)
        yield (
            ctx.key,
            self.total.value,
            self.pages.get(),
            dict(self.per_page.items()),
            self.longest.value,
            self.mean.value,
        )


class KeepAll(hf.KeyedProcess):
    """Remembers all columns that are state; says what they were before."""

    names: tuple[str, ...] = ()
    output = "number bigint, key string, before string"

    def process(self, row: Any, ctx: hf.Context) -> Iterable[Any]:
        before = [getattr(self, name).value for name in self.names]
        for name in self.names:
            getattr(self, name).value = row[name]
        yield row.number, repr(ctx.key), repr(before)


def keep_all(kinds: Mapping[str, str]) -> hf.KeyedProcess:
    """A step with one state variable per name and type."""
    members: dict[str, Any] = {name: hf.ValueState(kind) for name, kind in kinds.items()}
    made = type("KeepAllOf", (KeepAll,), members | {"names": tuple(kinds)})
    process: hf.KeyedProcess = made()
    return process


class TotalAndCount(hf.KeyedProcess):
    """RunningTotal with a variable added."""

    total = hf.ValueState("bigint", default=0)
    count = hf.ValueState("int", default=0)
    output = "user string, total bigint, count int"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        self.count.value += 1
        yield edit.user, self.total.value, self.count.value


class RenamedTotal(hf.KeyedProcess):
    """TotalAndCount with `total` under a new name, and `count` wider."""

    balance = hf.ValueState("bigint", default=0, renamed_from="total")
    count = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.balance.value += edit.diff
        self.count.value += 1
        yield edit.user, self.balance.value


class OtherNameTotal(hf.KeyedProcess):
    """`total` under a new name, and nothing said about it."""

    balance = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        yield edit.user, self.balance.value


class TextTotal(hf.KeyedProcess):
    total = hf.ValueState("string")
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        yield edit.user, len(self.total.value or "")


class OtherKeyTotal(RunningTotal):
    """The same state, keyed by another column."""


class OnceRenamedTotal(RenamedTotal):
    """RenamedTotal, the old name no longer mentioned."""

    balance = hf.ValueState("bigint", default=0)


class TwiceRenamedTotal(hf.KeyedProcess):
    """And renamed once more."""

    bytes = hf.ValueState("bigint", default=0, renamed_from="balance")
    count = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.bytes.value += edit.diff
        yield edit.user, self.bytes.value


class ReusedName(TwiceRenamedTotal):
    """A new variable under a name that older blocks have."""

    bytes = hf.ValueState("bigint", default=0)
    total = hf.ValueState("int")


class PairTotal(hf.KeyedProcess):
    """Sum and number in one variable, whose fields have the same type."""

    total = hf.ValueState("struct<sum: bigint, n: bigint>")
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        known = self.total.value or (0, 0)
        self.total.value = (known[0] + edit.diff, known[1] + 1)
        yield edit.user, self.total.value[0]
