"""Rows that people write in code, checked and made into Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.schema import columns_ddl
from holdfast.state.values import coercion, encode, optional


def row_tuple(row: Any, schema: pa.Schema, what: str) -> tuple[Any, ...]:
    """A row given as a tuple or as a dict by column name, in the exact form of its types."""
    values = tuple(row.get(name) for name in schema.names) if isinstance(row, dict) else row
    try:
        return _coerced(values, schema)
    except (TypeError, ValueError) as error:
        raise JobDefinitionError(
            "ROW_DOES_NOT_FIT",
            f"{what} is {shorten(row)}, which does not fit ({columns_ddl(schema)}): {error}.",
            fix="correct the row or the schema.",
        ) from error


def _coerced(values: Sequence[Any], schema: pa.Schema) -> tuple[Any, ...]:
    if len(values) != len(schema):
        raise ValueError(f"it has {len(values)} values for {len(schema)} columns")
    return tuple(
        optional(coercion(field.type))(value)
        for value, field in zip(values, schema, strict=True)
    )


def rows_to_batch(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Columns of rows that :func:`row_tuple` has made."""
    listed = list(rows)
    return pa.RecordBatch.from_arrays(
        [encode([row[at] for row in listed], field.type) for at, field in enumerate(schema)],
        schema=schema,
    )
