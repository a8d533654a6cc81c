"""State as plain columns: from either backend, and back into either, nothing changes."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.backend import Backend, HeapBackend, RocksBackend
from holdfast.state.blocks import StateLayout, StateVariable
from holdfast.state.canonical import StoredStep, fill
from holdfast.state.heap import HeapCache
from holdfast.state.key_groups import canonical_bytes, key_from_bytes
from holdfast.state.stored import KeyEntries, LogEntries
from holdfast.state.values import NAN, struct_class
from holdfast.testing.entries import MemoryEntries

TEXT = st.none() | st.text(max_size=8)
STRUCT = pa.struct([("a", pa.string()), ("b", pa.int64())])
KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXT,
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.none() | st.booleans(),
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.binary(): st.none() | st.binary(max_size=8),
    pa.date32(): st.none() | st.dates(),
    pa.timestamp("us", tz="UTC"): st.none() | st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.none() | st.datetimes(),
    pa.duration("us"): st.none() | st.timedeltas(timedelta(-1000), timedelta(1000)),
    pa.decimal128(12, 2): st.none() | st.decimals("-999", "999", places=2),
    pa.list_(pa.int64()): st.none() | st.lists(st.none() | st.integers(0, 9)).map(tuple),
    STRUCT: st.none() | st.builds(struct_class(STRUCT), TEXT, st.none() | st.integers(0, 9)),
}
KINDS = (pa.string(), pa.int64())
LAYOUT = StateLayout(
    KINDS,
    (
        StateVariable("total", pa.int64()),
        StateVariable("pages", pa.list_(pa.string())),
        StateVariable("seen", pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))),
        StateVariable("user", pa.decimal128(12, 2)),
        StateVariable("!event", pa.list_(pa.int64()), clock="event"),
    ),
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "total": st.integers(-(2**63), 2**63 - 1),
        "pages": st.lists(st.text(max_size=4), min_size=1, max_size=40),
        "seen": st.dictionaries(
            st.text(max_size=4),
            st.datetimes(timezones=st.just(UTC)),
            min_size=1,
            max_size=40,
        ),
        "user": st.decimals("-999", "999", places=2),
        "!event": st.lists(st.integers(0, 2**50), min_size=1, max_size=4, unique=True).map(
            sorted
        ),
    },
)
STATE = st.dictionaries(
    st.tuples(TEXT, st.none() | st.integers(0, 99)), VALUES.filter(bool), max_size=12
)


def step(backend: str) -> StoredStep:
    return StoredStep("s", ("user", "n"), LAYOUT, frozenset({"pages", "seen"}), backend)


def store(backend: str, entries: MemoryEntries) -> Any:
    return (LogEntries if backend == "heap" else KeyEntries)(entries)


def machinery(backend: str) -> Backend:
    if backend == "heap":
        return HeapBackend(HeapCache(1 << 20), LAYOUT, "owner")
    return RocksBackend(LAYOUT, frozenset({"pages", "seen"}))


def stored(backend: str, state: dict[Any, dict[str, Any]]) -> MemoryEntries:
    """What a key group has in the store, written by several visits."""
    entries = MemoryEntries()
    for key, values in state.items():
        driven = machinery(backend)
        group = driven.begin(store(backend, entries), 0)
        group.ensure([key])
        group.touch(key)
        for variable, table in zip(LAYOUT.variables, group.tables, strict=True):
            if variable.name in values:
                table[key] = values[variable.name]
        driven.end(group, store(backend, entries), None)
    return entries


def as_state(rows: pa.RecordBatch) -> dict[Any, dict[str, Any]]:
    assert rows.schema.names == ["user", "n", "total", "pages", "seen", "state_user", "!event"]
    found = {}
    for user, n, *values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        pairs = zip([each.name for each in LAYOUT.variables], values, strict=True)
        known = {name: value for name, value in pairs if value is not None}
        found[user, n] = known | ({"seen": dict(known["seen"])} if "seen" in known else {})
    return found


@pytest.mark.parametrize("after", ["heap", "rocksdb"])
@pytest.mark.parametrize("before", ["heap", "rocksdb"])
@given(state=STATE)
def test_state_survives_the_way_through_columns(
    before: str, after: str, state: dict[Any, dict[str, Any]]
) -> None:
    rows = step(before).rows(stored(before, state).entries)
    assert as_state(rows) == state
    entries, driven = MemoryEntries(), machinery(after)
    # In two parts: a key group's rows come in any number of blocks.
    block = rows.rename_columns(LAYOUT.schema.names)
    for part in (block.slice(0, 3), block.slice(3)):
        group = driven.begin(store(after, entries), 0)
        fill(group, LAYOUT, part)
        times = [time for each in part.column("v_!event").to_pylist() for time in each or ()]
        due = group.queues[-1].next()
        assert due is None or not times or due <= min(times), "Spark is told of the earliest"
        driven.end(group, store(after, entries), None)
    assert as_state(step(after).rows(entries.entries)) == state
    assert step(after).live_keys(entries.entries) == len(state)


@given(data=st.data())
@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_a_key_is_read_back_from_its_bytes(kind: pa.DataType, data: st.DataObject) -> None:
    key = data.draw(KEYS[kind])
    assert key_from_bytes(canonical_bytes(key), (kind,)) == key
    both = (key, "x")
    assert key_from_bytes(canonical_bytes(both), (kind, pa.string())) == both


def test_keys_of_exact_types_keep_them() -> None:
    assert key_from_bytes(canonical_bytes(True), (pa.bool_(),)) is True
    assert type(key_from_bytes(canonical_bytes(date(2026, 1, 2)), (pa.date32(),))) is date
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert key_from_bytes(canonical_bytes(moment), (pa.timestamp("us", tz="UTC"),)) == moment
    kept = key_from_bytes(canonical_bytes(Decimal("1.50")), (pa.decimal128(12, 2),))
    assert str(kept) == "1.50"


def test_all_nans_are_one_key() -> None:
    negative = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert canonical_bytes(negative) == canonical_bytes(float("nan"))
    assert key_from_bytes(canonical_bytes(float("nan")), (pa.float64(),)) is NAN


def test_no_byte_of_a_double_is_a_mark() -> None:
    for first in range(256):
        (number,) = struct.unpack(">d", bytes([first]) + bytes(7))
        key = (number, "x")
        assert key_from_bytes(canonical_bytes(key), (pa.float64(), pa.string())) == key
