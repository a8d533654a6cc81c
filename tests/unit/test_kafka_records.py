"""Rows as Kafka records: what `json` reads back is what was in the columns."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DataError, HoldfastError
from holdfast.sinks import Delivery, Kafka
from holdfast.sinks.kafka_records import RecordShape, json_objects

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def objects(table: pa.Table) -> list[dict[str, Any]]:
    return [json.loads(text) for text in json_objects(table).to_pylist()]


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(max_size=8),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_written_is_what_was_there(rows: list[tuple[Any, ...]]) -> None:
    names = ("text", 'a "strange" näme', "float", "yes")
    kinds = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
    columns = [pa.array(c, k) for c, k in zip(zip(*rows, strict=True), kinds, strict=True)]
    table = pa.table(columns, names=list(names))
    expected = [dict(zip(names, row, strict=True)) for row in rows]
    assert objects(table) == expected
    assert objects(pa.concat_tables([table, table])) == expected * 2


def test_every_type() -> None:
    table = pa.table(
        {
            "moment": pa.array([NOON, None], pa.timestamp("us", tz="UTC")),
            "local": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")),
            "day": pa.array([date(2026, 3, 1), None]),
            "price": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
            "raw": pa.array([b"\x00\xff", None]),
            "tags": pa.array([["a", None], None]),
            "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "point": pa.array([{"x": 0.5, "at": NOON, "p": Decimal("1.50")}, None]),
            "not_finite": pa.array([math.nan, math.inf]),
        }
    )
    full, empty = objects(table)
    assert full == {
        "moment": "2026-03-01T12:00:00.250000Z",
        "local": "2026-03-01T12:00:00.250000",
        "day": "2026-03-01",
        "price": 12.5,
        "raw": "AP8=",
        "tags": ["a", None],
        "counts": {"a": 1},
        "point": {"x": 0.5, "at": "2026-03-01T12:00:00.250000Z", "p": 1.5},
        "not_finite": None,
    }
    assert set(empty.values()) == {None}


def test_columns_become_what_the_sink_says() -> None:
    table = pa.table(
        {"id": [1, None], "text": ["é", None], "raw": [b"x", b"y"], "to": [2, None]}
    )
    shape = RecordShape(key="id", value="text", headers={"h": "raw"}, partition="to")
    assert list(shape.records(table)) == [
        (b"1", "é".encode(), [("h", b"x")], 2),
        (None, None, [("h", b"y")], -1),
    ]
    plain = list(RecordShape(partition="to").records(table.drop_columns(["raw"])))
    assert [record[0] for record in plain] == [None, None]
    assert json.loads(plain[0][1] or b"") == {"id": 1, "text": "é"}
    with pytest.raises(DataError, match="a partition is a whole number"):
        list(RecordShape(partition="text").records(table))
    with pytest.raises(DataError, match="has no form in JSON"):
        json_objects(pa.table({"n": pa.array([[1]], pa.list_(pa.duration("us")))}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "a topic"}, "cannot be a topic"),
        ({"guarantee": "maybe"}, "guarantee is 'maybe'"),
        ({"options": {"acks": "0"}}, "acks is not yours to set"),
        ({"options": {"sasl.password": "x"}}, "is written down in the code"),
        ({"servers": "nowhere"}, "servers is 'nowhere'"),
        ({"transaction_timeout": "soon"}, "transaction_timeout"),
    ],
)
def test_a_sink_is_checked_when_it_is_declared(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HoldfastError, match=words):
        Kafka(**{"topic": "out", "servers": "127.0.0.1:9092", **options})


def test_a_sink_of_another_timeline_is_another_topic() -> None:
    sink = Kafka("out", servers=["127.0.0.1:9092", "127.0.0.1:9093"], key="user")
    assert sink.with_suffix("") is sink
    assert (sink.with_suffix(".t1").topic, sink.with_suffix(".t1").like) == ("out.t1", "out")
    assert sink.columns == ("user",)
    assert not sink.rewindable
    assert sink.delivery is Delivery.TRANSACTIONAL
    at_least = Kafka("out", servers="127.0.0.1:9092", guarantee="at_least_once")
    assert at_least.delivery is Delivery.REPEATING
