"""Rows that user code yields, to Arrow batches by output; a row that does not fit is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from holdfast.errors import OutputSchemaError, shorten
from holdfast.state.process import MAIN, Routed
from holdfast.state.schema import type_ddl
from holdfast.state.values import encode

Batches = list[tuple[str, pa.RecordBatch]]
"""Output tag and rows."""
Origin = Callable[[int], tuple[Any, Any]]
"""The key and the record (or timer) that output row number n came from; asked only when a
row is wrong."""

_UNFIT = (TypeError, ValueError, OverflowError, pa.ArrowException)


class OutputEncoder:
    """Encodes the output of one step."""

    def __init__(self, uid: str, process: str, outputs: Mapping[str, pa.Schema]) -> None:
        self._uid, self._process, self._outputs = uid, process, outputs

    def rows(self, rows: list[Any], origin: Origin) -> Batches:
        if not rows:
            return []
        if len(self._outputs) == 1:
            return [(MAIN, self._columns(MAIN, rows, range(len(rows)), origin))]
        by_tag: dict[str, tuple[list[Any], list[int]]] = {
            tag: ([], []) for tag in self._outputs
        }
        for at, row in enumerate(rows):
            tag, values = (row.side, row.row) if type(row) is Routed else (MAIN, row)
            if tag not in by_tag:
                raise self._unfit(tag, row, at, origin, f"no side output {tag!r}")
            by_tag[tag][0].append(values)
            by_tag[tag][1].append(at)
        return [
            (tag, self._columns(tag, values, places, origin))
            for tag, (values, places) in by_tag.items()
            if values
        ]

    def _columns(
        self, tag: str, rows: list[Any], places: Sequence[int], origin: Origin
    ) -> pa.RecordBatch:
        schema = self._outputs[tag]
        if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {len(schema)}:
            return self._columns_slowly(tag, rows, places, origin)
        try:
            arrays = [
                encode(list(map(itemgetter(at), rows)), field.type)
                for at, field in enumerate(schema)
            ]
        except _UNFIT:
            return self._columns_slowly(tag, rows, places, origin)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _columns_slowly(
        self, tag: str, rows: list[Any], places: Sequence[int], origin: Origin
    ) -> pa.RecordBatch:
        """Accept dicts, lists and single values, and name the row that does not fit."""
        schema = self._outputs[tag]
        plain = []
        for at, row in zip(places, rows, strict=True):
            try:
                values = _as_tuple(row, schema)
                for value, field in zip(values, schema, strict=True):
                    encode([value], field.type)
            except _UNFIT as error:
                raise self._unfit(tag, row, at, origin, str(error)) from error
            plain.append(values)
        return pa.RecordBatch.from_arrays(
            [
                encode(values, field.type)
                for values, field in zip(zip(*plain, strict=True), schema, strict=True)
            ],
            schema=schema,
        )

    def table(self, result: Any) -> Batches:
        """The table that ``process_batch`` returned."""
        if result is None:
            return []
        wanted = self._outputs[MAIN]
        if isinstance(result, pa.RecordBatch):
            result = pa.Table.from_batches([result])
        if not isinstance(result, pa.Table) or set(result.column_names) != set(wanted.names):
            found = result.column_names if isinstance(result, pa.Table) else type(result)
            raise OutputSchemaError(
                "OUTPUT_DOES_NOT_FIT",
                f"step {self._uid!r}: process_batch returned {found}; declared are the "
                f"columns {wanted.names}.",
                fix="return a pyarrow Table with exactly the declared columns.",
                step=self._uid,
            )
        try:
            fitted = result.select(wanted.names).cast(wanted).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OutputSchemaError(
                "OUTPUT_DOES_NOT_FIT",
                f"step {self._uid!r}: process_batch returned {result.schema}: {error}.",
                fix="cast the columns to the declared types.",
                step=self._uid,
            ) from error
        columns = [
            _one_chunk(column, wanted.field(i)) for i, column in enumerate(fitted.columns)
        ]
        return [(MAIN, pa.RecordBatch.from_arrays(columns, schema=wanted))]

    def _unfit(
        self, tag: str, row: Any, at: int, origin: Origin, why: str
    ) -> OutputSchemaError:
        key, record = origin(at)
        schema = self._outputs.get(tag)
        declared = (
            ", ".join(f"{field.name} {type_ddl(field.type)}" for field in schema)
            if schema is not None
            else f"the side outputs {sorted(set(self._outputs) - {MAIN})}"
        )
        return OutputSchemaError(
            "OUTPUT_DOES_NOT_FIT",
            f"step {self._uid!r} yielded {shorten(row)}, but declared is ({declared}): "
            f"{why or 'wrong number of values'}.\n"
            f"  key: {shorten(key)}\n  record: {shorten(record, 500)}",
            fix=f"yield what {self._process} declares, or change the declaration.",
            step=self._uid,
            key=shorten(key),
            record=shorten(record, 500),
        )


def _as_tuple(row: Any, schema: pa.Schema) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        unknown = set(row) - set(schema.names)
        if unknown:
            raise TypeError(f"undeclared columns {sorted(unknown)}")
        return tuple(row.get(name) for name in schema.names)
    if isinstance(row, (tuple, list)):
        if len(row) != len(schema):
            raise TypeError(f"{len(row)} values for {len(schema)} columns")
        return tuple(row)
    if len(schema) == 1:
        return (row,)
    raise TypeError(f"{type(row).__name__} is not a row")


def _one_chunk(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    chunks = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], field.type)
