"""Why a record does not parse, in words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from holdfast.errors import shorten
from holdfast.state.schema import parse_columns, type_ddl

SKIPPED_PREFIX = "holdfast-skipped-"
"""With a source's uid: the metric under which Spark reports how many records it skipped."""


def why_bad(raw: str, schema: str, fmt: str) -> str:
    """Why a line does not parse, in words. Only ever asked for lines that do not."""
    columns = parse_columns(schema)
    if fmt == "csv":
        values = len(next(csv.reader(io.StringIO(raw)), []))
        if values != len(columns):
            return f"{values} values for {len(columns)} columns"
        return "a value does not have the type of its column"
    try:
        value = json.loads(raw)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict):
        return f"a JSON {type(value).__name__}, not an object"
    for field in columns:
        found = value.get(field.name)
        if found is not None and not _json_fits(found, field.type):
            kind = type_ddl(field.type)
            return f"column {field.name!r}: {shorten(found, 80)} is not a {kind}"
    return "a value does not have the type of its column"


_JSON_KINDS: tuple[tuple[Callable[[pa.DataType], bool], type | tuple[type, ...]], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, (int, float)),
    (pa.types.is_decimal, (int, float)),
    (pa.types.is_temporal, str),
    (pa.types.is_struct, dict),
    (pa.types.is_map, dict),
    (pa.types.is_list, list),
)


def _json_fits(value: Any, kind: pa.DataType) -> bool:
    for matches, classes in _JSON_KINDS:
        if matches(kind):
            boolean = isinstance(value, bool) and classes is not bool
            return isinstance(value, classes) and not boolean
    return True
