"""JSON decoded by us means what from_json means: the same rows, the same bad records."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from holdfast.engine.json_records import SPARK_OPTIONS, BadJsonError, can_decode, decode
from holdfast.state.schema import parse_columns

DDL = "user string, diff bigint, small int, share double, bot boolean"
SCHEMA = parse_columns(DDL)
GOOD = b'{"user": "Ada", "diff": 5, "small": -1, "share": 0.25, "bot": true}'
NASTY = [
    GOOD,
    b"{}",
    b"",
    b" \n ",
    b"null",
    b"true",
    b"5",
    b'"text"',
    b"[]",
    b"[{}]",
    b'[{"user": "Ada"}]',
    b'{"user": "Ada"',
    b'{"user": "Ada",}',
    b'{"user": "Ada"} trailing',
    b'{"user": "Ada"}{"user": "Bob"}',
    b'{"user": "Ada"}}{"v":{"user": "Bob"}',
    b"{'user': 'Ada'}",
    b'{user: "Ada"}',
    b'{"user": "Ada"}\n{"user": "Bob"}',
    b'{\n "user":\t"Ada"\r\n}',
    b'{"user": "a\nb"}',
    b'{"user": "a\\nb\\u00e9\\ud83e\\udd89"}',
    b'{"user": "\\ud800"}',
    b'{"user": "\\x"}',
    b'{"user": "caf\xc3\xa9"}',
    b'{"user": "bad \xff\xfe bytes"}',
    b'{"user": "cut \xe2\x82"}',
    b'{"user": null, "diff": null}',
    b'{"USER": "Ada", "Diff": 5}',
    b'{"other": {"user": "Ada", "deep": [1, {"x": []}]}, "user": "Bob"}',
    b'{"user": "first", "user": "last"}',
    b'{"diff": "x", "diff": 5}',
    b'{"diff": 5, "diff": null}',
    b'{"user": 5}',
    b'{"user": 5.50}',
    b'{"user": -1E+3}',
    b'{"user": true}',
    b'{"user": {"a":  1, "b": [ ]}}',
    b'{"user": [1, 2 ,"x"]}',
    b'{"user": 1e7}',
    b'{"user": 12345678.25}',
    b'{"user": 0.00012}',
    b'{"user": 1e-3}',
    b'{"user": -0.0}',
    b'{"user": 1.0}',
    b'{"user": 12345678901234567890}',
    b'{"user": {"a\\u00e9\\n\\/": "x  y", "a": 1.50, "a": null, "n": [true , false]}}',
    b'{"other": NaN, "user": "Ada"}',
    b'{"other": [1, -Infinity], "user": "Ada"}',
    b'{"user": "NaN and Infinity"}',
    b'{"diff": 5.0}',
    b'{"diff": 1e2}',
    b'{"diff": "5"}',
    b'{"diff": ""}',
    b'{"diff": true}',
    b'{"diff": [5]}',
    b'{"diff": 05}',
    b'{"diff": +5}',
    b'{"diff": -0}',
    b'{"diff": 9223372036854775807}',
    b'{"diff": 9223372036854775808}',
    b'{"diff": -9223372036854775808}',
    b'{"diff": 99999999999999999999999999}',
    b'{"small": 2147483647}',
    b'{"small": 2147483648}',
    b'{"share": 1}',
    b'{"share": -0.0}',
    b'{"share": 1e400}',
    b'{"share": .5}',
    b'{"share": 5.}',
    b'{"share": NaN}',
    b'{"share": "NaN"}',
    b'{"share": Infinity}',
    b'{"share": "Infinity"}',
    b'{"share": "0.5"}',
    b'{"share": 0.1234567890123456789}',
    b'{"share": 123456789012345678901234567890}',
    b'{"bot": "true"}',
    b'{"bot": 1}',
    b'{"bot": TRUE}',
    b'\xef\xbb\xbf{"user": "Ada"}',
    b'{"user": "Ada", // comment\n "diff": 5}',
    b'{"us\\u0065r": "Ada"}',
    b'{"user": "tab\there"}',
    b'{"": 5, "user": "Ada"}',
    b"\x00",
    b'{"user": "a\x00b"}',
    b'{"user": "a\\u0000b"}',
]


def mutated(count: int, seed: int) -> list[bytes]:
    """Good records in which a few bytes were dropped, doubled or replaced."""
    draw = random.Random(seed)
    alphabet = b'{}[]",:0123456789.eE-+ntfu \\'
    found = []
    for _ in range(count):
        record = bytearray(GOOD)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(record))
            match draw.randrange(3):
                case 0:
                    del record[at]
                case 1:
                    record.insert(at, record[at])
                case _:
                    record[at] = draw.choice(alphabet)
        found.append(bytes(record))
    return found


def by_spark(records: list[bytes]) -> list[Any]:
    session = SparkSession.builder.getOrCreate()
    frame = session.createDataFrame([(record,) for record in records], "value binary")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt", **SPARK_OPTIONS}
    parsed = f.from_json(f.col("value").cast("string"), f"{DDL}, corrupt string", options)
    value = f.col("value").cast("string")
    rows = frame.select(parsed.alias("p"), (f.length(f.trim(value)) == 0).alias("blank"))
    return [
        None
        if row.blank or row.p is None or row.p.corrupt is not None
        else tuple(row.p)[: len(SCHEMA)]
        for row in rows.collect()
    ]


def by_us(record: bytes) -> Any:
    try:
        batch = decode(pa.array([record], pa.binary()), SCHEMA)
    except BadJsonError:
        return None
    return tuple(batch.to_pylist()[0].values())


def test_every_record_means_the_same() -> None:
    records = NASTY + mutated(2000, seed=1)
    expected = by_spark(records)
    assert 500 < sum(row is None for row in expected) < len(records) - 200, "both kinds"
    differing = [
        (record, ours, theirs)
        for record, theirs in zip(records, expected, strict=True)
        if repr(ours := by_us(record)) != repr(theirs)
    ]
    assert not differing, "\n".join(map(repr, differing))


def test_a_bad_record_is_found_among_good_ones() -> None:
    records = [GOOD, b'{"diff": "5"}', GOOD]
    with pytest.raises(BadJsonError) as caught:
        decode(pa.array(records, pa.binary()), SCHEMA)
    assert caught.value.index == 1
    # One that is only unusual does not hurt the others.
    rows = decode(pa.array([GOOD, b'{"user": 5}', GOOD], pa.binary()), SCHEMA).to_pylist()
    assert [row["user"] for row in rows] == ["Ada", "5", "Ada"]


def test_records_that_reach_into_each_other_are_not_taken_for_rows() -> None:
    """Two records that are bad by themselves, and together as many objects as records."""
    for records in (
        [b'{"user": "a"}}{"v":{"user": "b"}', b""],
        [b'{"other": [1,', b'{"user": "a"}]}', GOOD],
        [b'{"user": "a', b'b"}'],
    ):
        with pytest.raises(BadJsonError):
            decode(pa.array(records, pa.binary()), SCHEMA)


def test_slices_are_read_from_their_place() -> None:
    records = pa.array(
        [json.dumps({"user": f"u{n}", "diff": n}).encode() for n in range(10)], pa.binary()
    )
    rows = decode(records.slice(3, 4), SCHEMA).to_pylist()
    assert [(row["user"], row["diff"]) for row in rows] == [(f"u{n}", n) for n in range(3, 7)]


def test_which_columns_are_left_to_spark() -> None:
    assert can_decode(SCHEMA)
    for kind in ("timestamp", "decimal(10,2)", "array<string>", "smallint", "float"):
        assert not can_decode(parse_columns(f"x {kind}"))
