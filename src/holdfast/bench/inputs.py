"""The input files of the benchmark: made once, the same for every row.

Spark reads files in the order of their modification times, so these are set by hand: every
program then sees the same records in the same batches.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
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
_TIMED_SCHEMA = _KEYED_SCHEMA.append(pa.field("due", pa.timestamp("us", tz="UTC")))
_Asked = tuple[str, datetime | None]
"""A user, and for when a timer is asked for."""
_EPOCH_LENGTH = timedelta(minutes=1)
_FAR_AWAY = START + timedelta(days=3650)


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


def timed_keys(
    folder: Path,
    *,
    far: int,
    idle: int,
    near: int,
    plain: int,
    preload_epochs: int,
    epochs: int,
    file_records: int,
) -> None:
    """Two files per epoch: first every key once, then records of plain keys drawn uniformly.

    `far` keys ask for a timer ten years ahead, `idle` keys for none. `near` keys ask for one
    that comes while records of plain keys arrive: event time goes on by a minute per epoch,
    and the last two epochs are left out, so that all of them fire before the input ends.
    """
    if folder.exists():
        return
    draw = np.random.default_rng(far)
    every_key = [
        *((f"plain-{key:07d}", None) for key in range(plain)),
        *((f"far-{key:07d}", _FAR_AWAY) for key in range(far)),
        *((f"idle-{key:07d}", None) for key in range(idle)),
        *(
            (f"near-{key:07d}", _time_of(preload_epochs + key % (epochs - 2)))
            for key in range(near)
        ),
    ]

    def files() -> Iterator[list[_Asked]]:
        for places in np.array_split(draw.permutation(len(every_key)), 2 * preload_epochs):
            yield [every_key[place] for place in places.tolist()]
        for _ in range(2 * epochs):
            drawn = draw.integers(plain, size=file_records).tolist()
            yield [(f"plain-{key:07d}", None) for key in drawn]

    _write(folder, (_timed(file, _time_of(n // 2), draw) for n, file in enumerate(files())))


def _time_of(epoch: int) -> datetime:
    return START + epoch * _EPOCH_LENGTH


def _timed(asked: Sequence[_Asked], time: datetime, draw: np.random.Generator) -> pa.Table:
    return pa.table(
        [
            pa.array([user for user, _ in asked], pa.string()),
            pa.array(draw.integers(-500, 500, size=len(asked))),
            pa.array([time] * len(asked), _TIMED_SCHEMA.field("ts").type),
            pa.array([due for _, due in asked], _TIMED_SCHEMA.field("due").type),
        ],
        schema=_TIMED_SCHEMA,
    )


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
