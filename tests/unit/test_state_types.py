"""Any Spark SQL type as key part and as state: the same after a reload as before it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import CorruptionError, DataError, HoldfastError, JobDefinitionError
from holdfast.state.backend import Backend, HeapBackend, RocksBackend
from holdfast.state.blocks import StateLayout, StateVariable, apply_block
from holdfast.state.heap import HeapCache
from holdfast.state.key_groups import canonical_bytes, key_group_of, spark_label
from holdfast.state.plan import StepPlan
from holdfast.state.process import inspect_process
from holdfast.state.runner import StepRunner
from holdfast.state.schema import columns_ddl, parse_columns, parse_type
from holdfast.state.values import encode
from holdfast.testing.stores import BatchStore, StoredGroup

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "boolean": (True, False),
    "tinyint": (-128, 127),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "float": (0.5, -1.25),
    "double": (0.1, -1e300),
    "string": ("", "Ærø 🦀"),
    "binary": (b"", b"\x00\xff"),
    "date": (date(1, 1, 1), date(2026, 11, 16)),
    "timestamp": (NOON, NOON - timedelta(days=40_000)),
    "timestamp_ntz": (NOON.replace(tzinfo=None), datetime(1900, 1, 1)),
    "interval day to second": (timedelta(days=-3, microseconds=7), timedelta(0)),
    "decimal(38,10)": (Decimal("1234567890.0123456789"), Decimal("-1E-10")),
    "decimal(38,0)": (Decimal("9" * 38), Decimal(0)),
    "array<string>": (["a", None], []),
    "struct<a:int,b:array<bigint>>": ((1, [2, 3]), (None, None)),
}
ONLY_STATE: dict[str, tuple[Any, Any]] = {
    "map<string,bigint>": ({"a": 1, "b": None}, {}),
    "array<map<string,int>>": ([{"a": 1}], [{}]),
}


class KeepLast(hf.KeyedProcess):
    """Gives back the value of the record before."""

    last: Any  # declared by the subclass, with the type under test
    output = "found boolean"

    def __init__(self) -> None:
        self.befores: list[Any] = []

    def process(self, row: Any, ctx: hf.Context) -> Iterable[Any]:
        self.befores.append((ctx.key, self.last.value))
        self.last.value = row.value
        yield (self.last.exists,)


@pytest.fixture(params=["heap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def new_backend(backend: str, plan: StepPlan) -> Backend:
    if backend == "rocksdb":
        return RocksBackend(plan.layout, plan.paged)
    return HeapBackend(HeapCache(10**9), plan.layout, "step")


class Bench:
    """One step on one key group, with a worker that keeps nothing between batches."""

    def __init__(self, backend: str, key: str, value: str) -> None:
        self.schema = parse_columns(f"key {key}, value {value}")
        members = {"last": hf.ValueState(value), "__module__": __name__}
        self.process = type("KeepLastOf", (KeepLast,), members)()
        plan = StepPlan(
            "step", self.process, inspect_process(self.process), ("key",), self.schema, 1
        )
        self.stored = StoredGroup()
        self._backend, self._plan = backend, plan

    def push(self, *rows: tuple[Any, Any]) -> list[tuple[Any, Any]]:
        """Run a batch; what each record's key held before it."""
        keys, values = zip(*rows, strict=True)
        block = pa.RecordBatch.from_arrays(
            [
                encode(column, field.type)
                for column, field in zip((keys, values), self.schema, strict=True)
            ],
            schema=self.schema,
        )
        store = BatchStore(self.stored)
        StepRunner(self._plan, new_backend(self._backend, self._plan)).run(store, 0, [block])
        self.stored = store.group
        found = list(self.process.befores)
        self.process.befores.clear()
        return found


@pytest.mark.parametrize("kind", [*VALUES, *ONLY_STATE])
def test_state_of_every_type(backend: str, kind: str) -> None:
    first, second = (VALUES | ONLY_STATE)[kind]
    bench = Bench(backend, "string", kind)
    assert bench.push(("a", first), ("b", second)) == [("a", None), ("b", None)]
    assert bench.push(("a", second), ("b", None)) == [("a", first), ("b", second)]
    assert bench.push(("a", None), ("b", first)) == [("a", second), ("b", None)]
    assert bench.push(("a", None)) == [("a", None)]
    assert bench.stored.head is not None
    assert bench.stored.head.live_keys == 1


@pytest.mark.parametrize("kind", list(VALUES))
def test_key_of_every_type(backend: str, kind: str) -> None:
    first, second = VALUES[kind]
    bench = Bench(backend, kind, "int")
    bench.push((first, 1), (second, 2), (None, 3), (first, 4))
    befores = [before for _, before in bench.push((None, 0), (second, 0), (first, 0))]
    assert befores == [3, 2, 4]


def test_keys_that_spark_calls_equal(backend: str) -> None:
    bench = Bench(backend, "double", "int")
    bench.push((float("nan"), 1), (0.0, 2))
    befores = [before for _, before in bench.push((float("nan"), 3), (-0.0, 4))]
    assert befores == [1, 2]


@pytest.mark.parametrize("kind", [*VALUES, *ONLY_STATE])
def test_ddl_survives_the_round_trip(kind: str) -> None:
    schema = parse_columns(f"`odd name` {kind}, plain {kind}")
    assert parse_columns(columns_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("key", "encoded", "group"),
    [
        (None, "6e", 18),
        (True, "74", 40),
        (7, "690000000000000007", 50),
        ("é", "7300000002c3a9", 39),
        (1.5, "643ff8000000000000", 41),
        (b"\x01", "620000000101", 37),
        (date(2026, 1, 1), "44000b4921", 39),
        (("a", None), "28000000027300000001616e", 44),
        (Decimal("1.50"), "4e00000004312e3530", 15),
    ],
)
def test_golden_encodings_of_keys(key: Any, encoded: str, group: int) -> None:
    """Where a key's state lies depends on these bytes: they must never change."""
    assert canonical_bytes(key).hex() == encoded
    assert key_group_of(key, 64) == group


def test_key_groups_are_spread_evenly() -> None:
    """Spark's hash of a label is the key group: checked against Spark in tests/spark."""
    labels = [spark_label(group) for group in range(32_768)]
    assert len(set(labels)) == len(labels)
    assert labels[:3] == [-1693959553, -1910889132, -1382833682]


GOLDEN_BLOCK = (
    "/////3gBAAAQAAAAAAAKAA4ABgAFAAgACgAAAAABBAAQAAAAAAAKAAwAAAAEAAgACgAAAEgAAAAEAAAAAQAA"
    "AAwAAAAIAAwABAAIAAgAAAAQAAAABAAAAAEAAAAxAAAAFAAAAGhvbGRmYXN0LnN0YXRlLWJsb2NrAAAAAAQA"
    "AADYAAAAkAAAAFwAAAAEAAAASP///wAAAQwUAAAAHAAAAAQAAAABAAAAFAAAAAcAAAB2X3BhZ2VzAED///90"
    "////AAABBRAAAAAYAAAABAAAAAAAAAAEAAAAaXRlbQAAAABo////nP///wAAAQIQAAAAGAAAAAQAAAAAAAAA"
    "BwAAAHZfdG90YWwA1P///wAAAAFAAAAAzP///wAAAQIQAAAAHAAAAAQAAAAAAAAAAgAAAGsxAAAIAAwACAAH"
    "AAgAAAAAAAABQAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABBRAAAAAYAAAABAAAAAAAAAACAAAAazAAAAQA"
    "BAAEAAAA/////2gBAAAUAAAAAAAAAAwAFgAGAAUACAAMAAwAAAAAAwQAGAAAAIgAAAAAAAAAAAAKABgADAAE"
    "AAgACgAAANwAAAAQAAAAAwAAAAAAAAAAAAAADAAAAAAAAAAAAAAAAQAAAAAAAAAIAAAAAAAAABAAAAAAAAAA"
    "GAAAAAAAAAAIAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAABgAAAAAAAAAOAAAAAAAAAABAAAAAAAA"
    "AEAAAAAAAAAAGAAAAAAAAABYAAAAAAAAAAEAAAAAAAAAYAAAAAAAAAAQAAAAAAAAAHAAAAAAAAAAAAAAAAAA"
    "AABwAAAAAAAAAAwAAAAAAAAAgAAAAAAAAAADAAAAAAAAAAAAAAAFAAAAAwAAAAAAAAABAAAAAAAAAAMAAAAA"
    "AAAAAAAAAAAAAAADAAAAAAAAAAEAAAAAAAAAAwAAAAAAAAACAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAAFAAAA"
    "AAAAAAAAAAAEAAAABAAAAAgAAABab8OrZ29uZQEAAAAAAAAAAgAAAAAAAAADAAAAAAAAAAMAAAAAAAAAKgAA"
    "AAAAAAD5/////////wAAAAAAAAAAAQAAAAAAAAAAAAAAAgAAAAIAAAACAAAAAAAAAAEAAAADAAAAAAAAAGHD"
    "qQAAAAAA/////wAAAAA="
)
"""Format 1: keys (string, bigint), variables `total bigint` and `pages array<string>`."""


def test_golden_block_still_loads() -> None:
    key_kinds = (parse_type("string"), parse_type("bigint"))
    layout = StateLayout(
        key_kinds,
        (
            StateVariable("total", parse_type("double")),  # widened since
            StateVariable("titles", parse_type("array<string>"), older_names=("none", "pages")),
            StateVariable("added", parse_type("int")),
        ),
    )
    tables: list[dict[Any, Any]] = [{("gone", 3): 1.0}, {}, {}]
    keys = apply_block(layout, base64.b64decode(GOLDEN_BLOCK), tables)
    assert keys == [("Zoë", 1), (None, 2), ("gone", 3)]
    assert tables == [{("Zoë", 1): 42.0, (None, 2): -7.0}, {("Zoë", 1): ["a", "é"]}, {}]


def test_damaged_block_is_named() -> None:
    layout = StateLayout((parse_type("string"),), ())
    with pytest.raises(CorruptionError, match="STATE_BLOCK_UNREADABLE"):
        apply_block(layout, base64.b64decode(GOLDEN_BLOCK)[:100], [])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tinyint", 128),
        ("bigint", 2**63),
        ("int", "7"),
        ("int", 1.5),
        ("string", b"x"),
        ("timestamp", datetime(2026, 1, 1)),
        ("timestamp_ntz", NOON),
        ("date", NOON),
        ("decimal(3,1)", Decimal("123.4")),
        ("decimal(38,10)", Decimal(10) ** 40),
        ("array<int>", ["x"]),
        ("struct<a:int>", {"b": 1}),
    ],
)
def test_value_that_does_not_fit(backend: str, kind: str, value: Any) -> None:
    """Refused when it is written or stored, with the key; never stored as something else."""

    class Wrong(hf.KeyedProcess):
        last = hf.ValueState(kind)
        output = "n int"

        def process(self, row: Any, ctx: hf.Context) -> None:
            self.last.value = value

    process = Wrong()
    schema = parse_columns("key string")
    plan = StepPlan("step", process, inspect_process(process), ("key",), schema, 1)
    store = BatchStore(StoredGroup())
    block = pa.RecordBatch.from_pydict({"key": ["k1"]}, schema=schema)
    with pytest.raises(HoldfastError) as caught:
        StepRunner(plan, new_backend(backend, plan)).run(store, 0, [block])
    assert isinstance(caught.value, DataError)
    assert "k1" in str(caught.value)
    assert caught.value.fix
    assert store.group == StoredGroup()


@pytest.mark.parametrize(
    "ddl",
    ["", "user", "user strin", "a int, a int", "a decimal(40,2)", "a array<int", "a int b"],
)
def test_bad_schema_is_refused(ddl: str) -> None:
    with pytest.raises(JobDefinitionError, match="INVALID_SCHEMA"):
        parse_columns(ddl)
