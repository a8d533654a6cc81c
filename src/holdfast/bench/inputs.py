"""The input files of the benchmark: made once, the same for every row.

Spark reads files in the order of their modification times, so these are set by hand: every
program then sees the same records in the same batches.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.demo.edits import START, generate_table

_FIRST_MTIME = 1_000_000_000
_KEYED_SCHEMA = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("diff", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)


def edits(folder: Path, *, files: int, file_records: int, users: int) -> None:
    """Synthetic Wikipedia edits: a few users make most of them."""
    if folder.exists():
        return
    table = generate_table(files * file_records, users=users)
    _write(folder, (table.slice(at * file_records, file_records) for at in range(files)))


def first_files(folder: Path, source: Path, count: int) -> None:
    """A folder with the first files of another, for programs too slow to read them all."""
    if folder.exists():
        return
    unfinished = _unfinished(folder)
    for path in sorted(source.iterdir())[:count]:
        os.link(path, unfinished / path.name)
    unfinished.rename(folder)


def key_space(
    folder: Path,
    *,
    keys: int,
    preload_epochs: int,
    epochs: int,
    file_records: int,
) -> None:
    """Two files per epoch: first every key once, then records of keys drawn uniformly."""
    if folder.exists():
        return
    draw = np.random.default_rng(keys)
    every_key = np.array_split(draw.permutation(keys), 2 * preload_epochs)
    drawn = (draw.integers(keys, size=file_records) for _ in range(2 * epochs))
    _write(folder, (_records(numbers, draw) for numbers in (*every_key, *drawn)))


def _records(keys: npt.NDArray[np.int64], draw: np.random.Generator) -> pa.Table:
    return pa.table(
        [
            pa.array([f"user-{key:07d}" for key in keys.tolist()], pa.string()),
            pa.array(draw.integers(-500, 500, size=len(keys))),
            pa.array([START] * len(keys), _KEYED_SCHEMA.field("ts").type),
        ],
        schema=_KEYED_SCHEMA,
    )


def _write(folder: Path, tables: Iterable[pa.Table]) -> None:
    unfinished = _unfinished(folder)
    for number, table in enumerate(tables):
        path = unfinished / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))
    unfinished.rename(folder)


def _unfinished(folder: Path) -> Path:
    """A folder to fill; it gets its name when it is complete, so --dir can be used again."""
    unfinished = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    return unfinished
