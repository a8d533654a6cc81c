"""JSON records to columns, in the Python hop that packs them anyway.

Spark's `from_json` costs more than all the rest of reading a topic; Arrow's own JSON reader is
several times as fast. It is strict, so a batch that it accepts has the same meaning for both;
a batch that it refuses is read again record by record, with the meaning that `from_json` has
(a test compares the two). Both are told to take JSON by its standard: no single quotes, no NaN.

Workers import this module: its imports are light.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from holdfast.state.schema import columns_ddl

Decode = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SPARK_OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""For `from_json`, so that both mean the same."""
OFFSET_BITS = 48
"""Of a record's place: its partition lies above."""
_SPACE = " \t\n\r"
_BAD = (ValueError, IndexError, StopIteration, RecursionError)
"""What reading a record that is not JSON raises."""
_NO_NUMBERS = (re.compile(b"NaN"), re.compile(b"Inf"))
"""Two: to look for one text is many times as fast as for either of two."""
_INT_BITS = {pa.int32(): 31, pa.int64(): 63}


class BadJsonError(ValueError):
    """The record at `index` does not parse."""

    def __init__(self, index: int) -> None:
        super().__init__(f"record {index} does not parse")
        self.index = index


def can_decode(schema: pa.Schema) -> bool:
    """Times, decimals and nested columns have more forms in Spark than it is worth to copy."""
    return all(field.type in _CONVERSIONS for field in schema)


def record_decoder(uid: str, schema: pa.Schema, topic: str | None) -> Decode:
    """Batches of (value, place) to rows, or, where `topic` does not say where all come from, of
    (value, place, topic). A bad record is named."""

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                yield decode(batch.column(0), schema)
            except BadJsonError as error:
                from holdfast.engine.kafka_reader import bad_record, why_bad_value

                record = batch.slice(error.index, 1).to_pylist()[0]
                raw, place = record["value"], _place(record, topic)
                text = None if raw is None else raw.decode("utf-8", "replace")
                reason = why_bad_value(text, columns_ddl(schema), "json")
                raise bad_record(uid, place, text, reason) from error

    return decoded


def _place(record: dict[str, Any], topic: str | None) -> dict[str, Any]:
    partition, offset = divmod(record["place"], 1 << OFFSET_BITS)
    return {"topic": topic or record["topic"], "partition": partition, "offset": offset}


def decode(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """The records (binary) as columns; raises :class:`BadJsonError` for the first bad one."""
    found = _by_arrow(values, schema)
    return found if found is not None else _one_by_one(values, schema)


def _by_arrow(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch | None:
    """None if a record is not as Arrow wants it."""
    if values.null_count or not len(values):
        return None
    try:
        text = values.cast(pa.string())  # refuses what is not UTF-8
        content = _lines(text)
        if content is None:
            return None
        table = pyarrow.json.read_json(
            pa.BufferReader(content),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=content.size),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if len(table) != len(values) or _has_no_numbers(text, content):
        return None
    return table.combine_chunks().to_batches()[0]


def _lines(text: pa.StringArray) -> pa.Buffer | None:
    """The records, a line each; None unless each begins with "{" and ends with "}".

    Then no record can reach into the next: a line end is nowhere in a text, and "}" before "{"
    is only between rows. So each gives a row at least, and as many rows as records are one row
    each.
    """
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    if not np.all(bounds[:-1] < bounds[1:]):
        return None
    characters = np.frombuffer(data, np.uint8)
    ends = characters[bounds[:-1]], characters[bounds[1:] - 1]
    if not (np.all(ends[0] == ord("{")) and np.all(ends[1] == ord("}"))):
        return None
    # As one list of all of them they are joined at the speed of copying.
    everything = pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text)
    return pc.binary_join(everything, "\n").buffers()[2]


def _has_no_numbers(text: pa.StringArray, content: pa.Buffer) -> bool:
    """Arrow takes NaN and Infinity for numbers, which JSON does not have."""
    if not any(word.search(content) for word in _NO_NUMBERS):
        return False
    suspects = text.filter(pc.match_substring_regex(text, "NaN|Inf"))
    try:
        for each in suspects.to_pylist():
            _members(each)
    except _BAD:
        return True
    return False


def _one_by_one(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    wanted = {field.name: (at, _CONVERSIONS[field.type]) for at, field in enumerate(schema)}
    columns: list[list[Any]] = [[] for _ in schema]
    for index, value in enumerate(values.to_pylist()):
        row: list[Any] = [None] * len(columns)
        try:
            if value is None:
                raise ValueError("it has no value")
            for name, found, raw in _members(value.decode("utf-8", "replace")):
                if name in wanted:
                    at, convert = wanted[name]
                    row[at] = None if found is None else convert(found, raw)
        except _BAD as error:
            raise BadJsonError(index) from error
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _members(text: str) -> list[tuple[str, Any, str]]:
    """Name, value, and the value's own text. What comes after the object is not looked at."""
    found: list[tuple[str, Any, str]] = []
    at = _skip(text, 0)
    if text[at] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    if text[at] == "}":
        return found
    while True:
        if text[at] != '"':
            raise ValueError("not a name")
        name, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("no colon")
        start = _skip(text, at + 1)
        value, at = _SCAN(text, start)
        found.append((name, value, text[start:at]))
        at = _skip(text, at)
        if text[at] == "}":
            return found
        if text[at] != ",":
            raise ValueError("no comma")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _refuse(word: str) -> None:
    raise ValueError(word)


_SCAN = json.JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]


def _whole(bits: int) -> Callable[[Any, str], int]:
    def convert(value: Any, _raw: str) -> int:
        if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
            raise ValueError("not a whole number of its size")
        return value

    return convert


def _double(value: Any, raw: str) -> float:
    if type(value) not in (int, float):
        raise ValueError("not a number")
    return float(raw)


def _boolean(value: Any, _raw: str) -> bool:
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


def _text(value: Any, raw: str) -> str:
    """What is no text is written anew, as Spark does. Half a surrogate has no form in UTF-8."""
    text = value if isinstance(value, str) else _TOKEN.sub(_rewritten, raw)
    return text.encode("utf-8", "replace").decode()


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+')


def _rewritten(token: re.Match[str]) -> str:
    text = token[0]
    if text.startswith('"'):
        return json.dumps(json.loads(text), ensure_ascii=False)
    if text.isspace():
        return ""
    return _java_double(float(text)) if any(each in ".eE" for each in text) else text


def _java_double(value: float) -> str:
    """As Java writes it: 0.5, 100.0, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int):
        return '"Infinity"' if not sign else '"-Infinity"'
    first, *rest = map(str, digits)
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"


_CONVERSIONS: dict[pa.DataType, Callable[[Any, str], Any]] = {
    pa.string(): _text,
    pa.bool_(): _boolean,
    pa.float64(): _double,
    **{kind: _whole(bits) for kind, bits in _INT_BITS.items()},
}
