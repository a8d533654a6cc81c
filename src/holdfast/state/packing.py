"""Packing rows by key group: what happens on both sides of the shuffle.

Instead of shuffling rows one by one, a task cuts its rows into one Arrow block per key
group. Blocks in flight carry no schema (both sides know it), only stored ones do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import DataError
from holdfast.state.key_groups import KeyGroupIndex
from holdfast.state.values import decode_keys

PACK_ROWS = 262_144
"""Rows gathered before they are cut: larger means fewer, longer blocks."""
PACK_BYTES = 64 * 1024**2


def pack(
    batches: Iterable[pa.RecordBatch], keys: tuple[str, ...], index: KeyGroupIndex
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut rows into (key group, block), keeping the order of rows within a group."""
    for table in gather(batches):
        groups = _groups_of([table.column(name) for name in keys], index)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        rows = table.take(pa.array(order)).combine_chunks().to_batches()[0]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        ends = np.r_[starts[1:], len(ordered)]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield int(ordered[start]), rows.slice(start, end - start)


def _groups_of(keys: list[pa.ChunkedArray], index: KeyGroupIndex) -> npt.NDArray[np.uint16]:
    """The key group of every row. As uint16 they are sorted twice as fast."""
    if len(keys) == 1 and _has_dictionary(keys[0].type):
        # A batch has far fewer keys than rows: look each key up once.
        coded = keys[0].combine_chunks().dictionary_encode(null_encoding="encode")
        groups = _looked_up(decode_keys([coded.dictionary]), index)
        indices: npt.NDArray[np.int32] = coded.indices.to_numpy()
        return groups[indices]
    return _looked_up(decode_keys(keys), index)


def _looked_up(keys: list[Any], index: KeyGroupIndex) -> npt.NDArray[np.uint16]:
    return np.fromiter(map(index.__getitem__, keys), np.uint16, len(keys))


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put small batches together, within :data:`PACK_ROWS` and :data:`PACK_BYTES`."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PACK_ROWS or size >= PACK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def to_wire(block: pa.RecordBatch) -> bytes:
    return bytes(block.serialize())


def from_wire(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            "BLOCK_UNREADABLE",
            f"a block of {len(data)} bytes does not have the schema {schema.names}: {error}.",
            fix="report this; blocks in flight are written and read by the same job.",
        ) from error
