"""Bytes of state values: what comes back is equal, down to the classes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptionError
from holdfast.state.codec import decoder, dump, encoder, key_wire, load
from holdfast.state.schema import parse_type
from holdfast.state.values import NAN, coercion, decode_keys, encode_keys, struct_class

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(),
    "varchar(3)": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9))])),
    "timestamp_ntz": st.datetimes(),
    "interval day to second": st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    "decimal(38,10)": st.decimals(-(10**17), 10**17, places=10),
    "decimal(5,0)": st.decimals(-99_999, 99_999, places=0),
}
KEYS = [name for name in SCALARS if name not in ("float", "double")]
"""NaN cannot be looked up in a dict, so maps with it cannot be compared."""


def _types(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    key = st.sampled_from(KEYS) | st.just("struct<a:date,b:int>")
    return st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        st.tuples(key, inner).map(lambda kinds: f"map<{kinds[0]},{kinds[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: "struct<" + ",".join(f"f{i}:{k}" for i, k in enumerate(kinds)) + ">"
        ),
    )


TYPES = st.recursive(st.sampled_from([*SCALARS, "void"]), _types, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values as a user might give them; None where a value may be missing."""
    if pa.types.is_list(kind):
        return st.lists(st.none() | values_of(kind.value_type), max_size=4)
    if pa.types.is_map(kind):
        keys, items = values_of(kind.key_type), st.none() | values_of(kind.item_type)
        return st.dictionaries(keys, items, max_size=4)
    if pa.types.is_struct(kind):
        return st.tuples(*(st.none() | values_of(field.type) for field in kind))
    if pa.types.is_null(kind):
        return st.none()
    return next(given for name, given in SCALARS.items() if parse_type(name) == kind)


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    return bool(left == right) and str(left) == str(right)  # 1.0 and 1.00 are equal decimals


@given(st.data())
def test_any_value_of_any_type(data: st.DataObject) -> None:
    kind = parse_type(data.draw(TYPES, label="type"))
    given = data.draw(values_of(kind), label="value")
    value = None if pa.types.is_null(kind) else coercion(kind)(given)
    assert same(decoder(kind)(encoder(kind)(value)), value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", -(2**63)),
        ("bigint", 2**63 - 1),
        ("double", -0.0),
        ("double", math.inf),
        ("string", "Ærø 🦀\x00"),
        ("date", date.max),
        ("timestamp", datetime.max.replace(tzinfo=UTC)),
        ("timestamp_ntz", datetime.min),
        ("decimal(28,0)", Decimal(10**28 - 1)),
        ("map<int,string>", {1: None, -5: "x"}),
        ("map<struct<a:int,b:date>,array<timestamp>>", {(1, date(2026, 1, 1)): [NOON, None]}),
        ("struct<a:int,b:struct<c:decimal(9,2)>>", (None, (Decimal("1.50"),))),
    ],
)
def test_edges(kind: str, value: Any) -> None:
    arrow = parse_type(kind)
    exact = coercion(arrow)(value)
    assert same(decoder(arrow)(encoder(arrow)(exact)), exact)


def test_structs_come_back_as_their_own_class() -> None:
    kind = parse_type("total double, n bigint")
    found = decoder(kind)(encoder(kind)(coercion(kind)({"total": 1.5, "n": 2})))
    assert type(found) is struct_class(kind)
    assert found.total == 1.5


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1])
def test_a_bigint_that_does_not_fit(number: int) -> None:
    with pytest.raises(OverflowError, match="does not fit into int64"):
        encoder(pa.int64())(number)


def test_an_interval_that_does_not_fit() -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        encoder(pa.duration("us"))(timedelta.max)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encoder(pa.string())("\ud800")
    assert encoder(pa.string())("a") == b"\x01\xa1a", "the packer must have been reset"


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        ("tinyint", "smallint", -7),
        ("int", "bigint", 2**31 - 1),
        ("float", "double", 0.5),
        ("float", "double", 1.0),
    ],
)
def test_a_wider_number_reads_what_a_narrower_one_wrote(
    narrow: str, wide: str, value: Any
) -> None:
    stored = encoder(parse_type(narrow))(value)
    assert same(decoder(parse_type(wide))(stored), value)
    assert stored == encoder(parse_type(wide))(value)


# Stored state must stay readable: these bytes may never change their meaning.
GOLDEN = [
    ("bigint", 300, "01cd012c"),
    ("boolean", True, "01c3"),
    ("double", 1.5, "01cb3ff8000000000000"),
    ("string", "Ærø", "01a5c38672c3b8"),
    ("binary", b"\x00\xff", "01c40200ff"),
    ("date", date(2026, 3, 1), "01ce000b495c"),
    ("timestamp", NOON, "01cf00064bf535b0f240"),
    ("timestamp_ntz", NOON.replace(tzinfo=None), "01cf00064bf535b0f240"),
    ("interval day to second", timedelta(seconds=-1), "01d2fff0bdc0"),
    ("decimal(9,2)", Decimal("1.50"), "01a4312e3530"),
    ("array<int>", [1, None], "019201c0"),
    ("map<string,int>", {"a": 1}, "0181a16101"),
    ("map<date,int>", {date(1, 1, 1): 1}, "01920101"),
    ("struct<a:int,b:date>", (7, date(1, 1, 2)), "01920702"),
]


@pytest.mark.parametrize(("kind", "value", "stored"), GOLDEN)
def test_golden_bytes(kind: str, value: Any, stored: str) -> None:
    arrow = parse_type(kind)
    exact = coercion(arrow)(value)
    assert encoder(arrow)(exact).hex() == stored
    assert same(decoder(arrow)(bytes.fromhex(stored)), exact)


class TestDamage:
    def test_another_format(self) -> None:
        for stored in (b"", b"\x02\x01", b"\x80\x05."):
            with pytest.raises(CorruptionError, match="STATE_FORMAT_UNKNOWN"):
                decoder(pa.int64())(stored)

    @pytest.mark.parametrize("stored", [b"\x01", b"\x01\xc1", b"\x01\x92\x01", b"\x01\x01\x01"])
    def test_not_msgpack(self, stored: bytes) -> None:
        with pytest.raises(CorruptionError, match="STATE_ENTRY_UNREADABLE"):
            decoder(pa.int64())(stored)


class TestKeys:
    """A key that comes back must be found in a dict that has it."""

    @given(st.data())
    def test_keys_of_any_type(self, data: st.DataObject) -> None:
        names = data.draw(
            st.lists(
                st.sampled_from([*SCALARS, "array<date>", "struct<a:double,b:array<int>>"]),
                min_size=1,
                max_size=3,
            )
        )
        kinds = tuple(parse_type(name) for name in names)
        given = [data.draw(st.none() | values_of(kind)) for kind in kinds]
        exact = [
            None if value is None else coercion(kind)(value)
            for kind, value in zip(kinds, given, strict=True)
        ]
        row = exact[0] if len(kinds) == 1 else tuple(exact)
        (key,) = decode_keys(encode_keys([row], kinds))
        wire = key_wire(kinds)
        packed = dump(key if wire.pack is None else wire.pack(key))
        found = load(packed) if wire.unpack is None else wire.unpack(load(packed))
        assert same(found, key)
        assert {key: "here"}[found] == "here"

    def test_nan_is_one_key(self) -> None:
        unpack = key_wire((pa.float64(),)).unpack
        assert unpack is not None
        assert unpack(load(dump(math.nan))) is NAN
