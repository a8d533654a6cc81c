"""Stored state blocks: what one batch changed in one key group, as an Arrow stream.

A block's rows are keys; a row replaces the whole state of its key, and a row without any
value means that the key is gone. Blocks describe themselves (schema, format version), so
a later version of the job, or a tool, can read them. They never hold pickles.
docs/reference/state-format.md describes the format; a golden block in the tests pins it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.times import Clock
from holdfast.state.values import decode, decode_keys, encode, encode_keys

FORMAT_VERSION = 1
_FORMAT_FIELD = b"holdfast.state-block"

Table = dict[Any, Any]
"""The values of one state variable by key. A key without a value has no entry."""


@dataclass(frozen=True)
class StateVariable:
    name: str
    kind: pa.DataType
    older_names: tuple[str, ...] = ()
    """Names under which blocks may still hold it, newest first."""
    clock: Clock | None = None
    """Set for variables that hold times (timers, expiries): which clock they wait for."""

    def column_in(self, columns: Mapping[str, int]) -> int | None:
        """Where a block holds this variable, if it does."""
        for name in (self.name, *self.older_names):
            if f"v_{name}" in columns:
                return columns[f"v_{name}"]
        return None


@dataclass(frozen=True)
class StateLayout:
    """The columns of a step's state: key parts first, then one column per variable."""

    key_kinds: tuple[pa.DataType, ...]
    variables: tuple[StateVariable, ...]

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(f"k{i}", kind) for i, kind in enumerate(self.key_kinds)]
        values = [pa.field(f"v_{variable.name}", variable.kind) for variable in self.variables]
        return pa.schema(keys + values, metadata={_FORMAT_FIELD: str(FORMAT_VERSION).encode()})


def encode_block(layout: StateLayout, keys: Sequence[Any], tables: Sequence[Table]) -> bytes:
    """The current state of `keys`; keys that are in no table become deletions."""
    columns = encode_keys(keys, layout.key_kinds)
    for variable, table in zip(layout.variables, tables, strict=True):
        columns.append(encode([table.get(key) for key in keys], variable.kind))
    batch = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def apply_block(layout: StateLayout, block: bytes, tables: Sequence[Table]) -> list[Any]:
    """Bring `tables` up to date with a block; returns the keys in it."""
    stored = _read(block)
    width = len(layout.key_kinds)
    keys = decode_keys([stored.column(i) for i in range(width)])
    names: Mapping[str, int] = {name: i for i, name in enumerate(stored.schema.names)}
    for variable, table in zip(layout.variables, tables, strict=True):
        at = variable.column_in(names)
        if at is None:
            # A variable added by newer code: no key has it yet.
            _remove(table, keys)
            continue
        column = stored.column(at)
        if column.type != variable.kind:
            column = column.cast(variable.kind)
        values = decode(column)
        if column.null_count == 0:
            table.update(zip(keys, values, strict=True))
            continue
        for key, value in zip(keys, values, strict=True):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
    return keys


def _remove(table: Table, keys: Iterable[Any]) -> None:
    for key in keys:
        table.pop(key, None)


def _read(block: bytes) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(block) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowInvalid, StopIteration, OSError) as error:
        raise CorruptionError(
            "STATE_BLOCK_UNREADABLE",
            f"a state block of {len(block)} bytes is not an Arrow stream: {error}.",
            fix="restore the checkpoint directory from a backup; the bytes were damaged.",
        ) from error
    version = (batch.schema.metadata or {}).get(_FORMAT_FIELD, b"").decode()
    if version != str(FORMAT_VERSION):
        raise CorruptionError(
            "STATE_FORMAT_UNKNOWN",
            f"a state block has format {version or 'none'!r}; this version reads "
            f"{FORMAT_VERSION}.",
            fix="run the holdfast version that wrote the state, or a newer one.",
        )
    return batch
