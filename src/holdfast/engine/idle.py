"""Beats: rows of our own that move the watermark of a source that is idle.

Which sources are idle is noted by the driver after every epoch, in a file. A beat carries the
largest event time that the job has seen, and is taken out again right behind the watermark. It
moves the watermark of the *next* epoch, so an epoch that is repeated after a crash has the same
rows, whatever the file says by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.errors import HoldfastError
from holdfast.event_time.idleness import Watched, idle_watermarks
from holdfast.storage.files import read_json, write_json

NOTES = "idle.json"
"""In the job's directory. It is of use to the beats alone, and can be missing."""

_LARGEST = "__holdfast_largest_"
_BEAT = "__holdfast_beat"


def with_largest_time(frame: DataFrame, number: int, column: str) -> DataFrame:
    """Let Spark report the largest event time of each epoch: of several watermarks it reports
    that of one alone, and not always of the same."""
    time = f.unix_micros(f.col(f"`{column}`").cast("timestamp"))
    return frame.observe(f"{_LARGEST}{number}", f.max(time).alias("largest"))


def largest_times(progress: Mapping[str, Any]) -> list[int]:
    """The largest event times of an epoch, in microseconds, of watermarks that had rows."""
    metrics = progress.get("observedMetrics", {})
    found = (row.get("largest") for name, row in metrics.items() if name.startswith(_LARGEST))
    return [each for each in found if each is not None]


def with_beats(
    frame: DataFrame, ticks: DataFrame, column: str, beat: Callable[..., Any]
) -> DataFrame:
    """A frame's rows and beats: nothing but an event time, and a mark."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    time = f.timestamp_micros("largest").cast(kinds[column])
    values = [
        (time if name == column else f.lit(None).cast(kind)).alias(name)
        for name, kind in kinds.items()
    ]
    beats = ticks.mapInArrow(beat, "largest bigint").select(*values, f.lit(True).alias(_BEAT))
    return frame.select("*", f.lit(False).alias(_BEAT)).union(beats)


def without_beats(frame: DataFrame) -> DataFrame:
    """Spark moves filters below the watermark, where they would take out beats too early: this
    one, and any that the job has behind it. It moves none past a filter that is not
    deterministic."""
    # Not `rand(0) < 0`: Spark knows that this is never so.
    never = f.rand(0) + 1 < 0
    return frame.where(~f.col(_BEAT) | never).drop(_BEAT)


def beater(notes: Path, run_id: str, number: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For mapInArrow: ticks of a clock to a beat, if this run has noted that one is due."""

    def beat(ticks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in ticks):
            noted = _read(notes)
            if noted.get("run") == run_id and number in noted["idle"]:
                yield pa.RecordBatch.from_pydict({"largest": [noted["largest"]]})

    return beat


class IdleNotes:
    """The driver's side: follows the epochs of one run, and notes who is idle."""

    def __init__(self, path: Path, run_id: str, watched: Sequence[Watched]) -> None:
        self._path, self._run_id, self._watched = path, run_id, watched
        self._needed = any(each.idle_after is not None for each in watched)
        self._last_rows: dict[str, datetime] = {}
        # The largest time that was seen still holds; who is idle has to show again.
        self._largest: int | None = _read(path).get("largest") if self._needed else None
        self._idle: tuple[int, ...] = ()

    def follow(
        self,
        progress: Mapping[str, Any],
        rows: Mapping[str, int],
        began: datetime,
        ended: datetime,
    ) -> None:
        """Take in an epoch: its report, its rows by source, and when it was."""
        if not self._needed:
            return
        if not self._last_rows:
            self._last_rows = {uid: began for each in self._watched for uid in each.sources}
        self._last_rows |= {
            uid: ended for uid, count in rows.items() if count and uid in self._last_rows
        }
        before = self._largest, self._idle
        known = [] if self._largest is None else [self._largest]
        self._largest = max([*known, *largest_times(progress)], default=None)
        idle = idle_watermarks(self._watched, self._last_rows, began)
        self._idle = idle if self._largest is not None else ()
        if (self._largest, self._idle) != before:
            self._write()

    @property
    def sources(self) -> dict[str, bool]:
        """The sources with a watermark, and whether each is idle."""
        return {
            uid: number in self._idle
            for number, each in enumerate(self._watched)
            for uid in each.sources
        }

    def _write(self) -> None:
        noted = {"run": self._run_id, "largest": self._largest, "idle": list(self._idle)}
        write_json(self._path, noted)


def _read(path: Path) -> dict[str, Any]:
    """No beat is better than an epoch that fails for want of one."""
    with suppress(HoldfastError):
        return dict(read_json(path))
    return {}
