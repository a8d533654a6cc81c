"""From an Avro schema to the columns that Spark makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import JobDefinitionError, shorten

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def avro_record(schema: object, owner: str) -> dict[str, Any]:
    """The schema, which must be that of a record."""
    try:
        parsed = json.loads(str(schema)) if schema is not None else None
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise JobDefinitionError(
            "SCHEMA_MISSING" if schema is None else "INVALID_OPTION",
            f'{owner}: format="avro" needs the Avro schema of a record, as JSON text.',
            fix='give it: schema=\'{"type": "record", "name": "Edit", "fields": […]}\'.',
        )
    return parsed


def avro_columns(record: Mapping[str, Any], owner: str) -> str:
    """The fields of a record as columns."""
    known: dict[str, str] = {}
    fields = record.get("fields") or []
    return ", ".join(f"`{each['name']}` {_kind(each['type'], known, owner)}" for each in fields)


def _kind(found: Any, known: dict[str, str], owner: str) -> str:
    if isinstance(found, list):
        others = [each for each in found if each != "null"]
        if len(others) == 1:
            return _kind(others[0], known, owner)
    elif isinstance(found, str) and (found in _PRIMITIVES or found in known):
        return _PRIMITIVES.get(found) or known[found]
    elif isinstance(found, dict):
        kind = _of_object(found, known, owner)
        if kind is not None:
            if "name" in found:
                known[found["name"]] = kind
            return kind
    raise JobDefinitionError(
        "INVALID_OPTION",
        f"{owner}: the Avro schema has the type {shorten(found)}, which is no column.",
        fix="use records, arrays, maps, primitive types, and unions of null and one other.",
    )


def _of_object(found: Mapping[str, Any], known: dict[str, str], owner: str) -> str | None:
    kind = found.get("type")
    logical = (kind, found.get("logicalType"))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical[1] == "decimal":
        return f"decimal({found['precision']},{found.get('scale', 0)})"
    if kind == "record":
        fields = (
            f"`{each['name']}`:{_kind(each['type'], known, owner)}" for each in found["fields"]
        )
        return f"struct<{','.join(fields)}>"
    if kind == "array":
        return f"array<{_kind(found['items'], known, owner)}>"
    if kind == "map":
        return f"map<string,{_kind(found['values'], known, owner)}>"
    return _kind(kind, known, owner) if isinstance(kind, str | list | dict) else None
