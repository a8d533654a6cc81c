"""Late records: as they came, and what made them late."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.times import EVENT, EpochTime, moment

LATE = "late"
"""The side output of records that came after the watermark had passed them."""
MOMENT = pa.timestamp("us", tz="UTC")
_FACTS = [
    ("late_watermark", MOMENT),  # where the watermark stood
    ("late_by_ms", pa.int64()),  # by how much it had passed the record
    ("late_epoch", pa.int64()),  # that read the record
    ("late_arrived", MOMENT),  # when that began
]


def late_schema(records: pa.Schema) -> pa.Schema:
    return pa.schema([*records, *_FACTS])


def explain_batch(late: pa.RecordBatch, times: pa.Array, time: EpochTime) -> pa.RecordBatch:
    """Late records with the facts of `late_schema`; `times` are theirs, in microseconds."""
    behind = pc.divide(pc.subtract(pa.scalar(time.watermark, pa.int64()), times), 1000)
    watermark, now = (pa.array([at] * len(times), MOMENT) for at in (time.watermark, time.now))
    facts = [watermark, behind, pa.array([time.epoch] * len(times), pa.int64()), now]
    return pa.RecordBatch.from_arrays([*late.columns, *facts], schema=late_schema(late.schema))


def explain(event_time: int | None, time: EpochTime) -> tuple[Any, ...]:
    """The facts of `late_schema` for one record."""
    watermark, now = (None if at is None else moment(at) for at in (time.watermark, time.now))
    behind = None if event_time is None else (time.of(EVENT) - event_time) // 1000
    return watermark, behind, time.epoch, now
