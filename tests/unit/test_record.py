"""Epoch records survive the trip through JSON."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.checkpoint.record import EpochRecord, EpochStatus, SinkResult, StateSize

START = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
FULL = EpochRecord(
    epoch=7,
    attempt=2,
    status=EpochStatus.COMMITTED,
    started=START,
    ended=START + timedelta(seconds=1.5),
    phases={"offsets": 0.01, "execute": 1.2, "commit": 0.05},
    input_rows=100,
    output_rows=90,
    skipped_rows=4096,
    bytes_written=2048,
    checkpoint_bytes=512,
    checkpoint_kind="full",
    state={"balances": StateSize(rows=10, bytes=640), "names": StateSize(rows=5, bytes=60)},
    sinks={"out": SinkResult(rows=90, bytes=2048, files=3, skipped=True)},
    watermark=START - timedelta(minutes=5),
    offsets={"edits": {"files": 3, "last": "part-2.json"}},
)


def test_every_field_survives_json() -> None:
    assert EpochRecord.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_a_record_with_defaults_only_survives_json() -> None:
    record = EpochRecord(epoch=0, attempt=1, status=EpochStatus.RUNNING, started=START)
    assert EpochRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_the_test_record_sets_every_field() -> None:
    """So that a new field cannot be forgotten in the round trip above."""
    for field in dataclasses.fields(EpochRecord):
        if field.default is not dataclasses.MISSING:
            assert getattr(FULL, field.name) != field.default, field.name


def test_times_are_written_in_utc() -> None:
    paris = timezone(timedelta(hours=2))
    record = dataclasses.replace(FULL, started=datetime(2026, 6, 1, 14, 0, tzinfo=paris))
    assert record.to_dict()["started"] == "2026-06-01T12:00:00Z"
    assert EpochRecord.from_dict(record.to_dict()).started.tzinfo is UTC


def test_a_time_without_zone_is_refused() -> None:
    record = dataclasses.replace(FULL, started=START.replace(tzinfo=None))
    with pytest.raises(ValueError, match="no time zone"):
        record.to_dict()


def test_phases_keep_their_order() -> None:
    assert list(EpochRecord.from_dict(FULL.to_dict()).phases) == [
        "offsets",
        "execute",
        "commit",
    ]


def test_fields_of_a_newer_holdfast_are_ignored() -> None:
    newer = FULL.to_dict() | {"energy_joules": 12}
    newer["state"]["balances"]["timers"] = 3
    newer["sinks"]["out"]["retries"] = 1
    assert EpochRecord.from_dict(newer) == FULL


def test_totals() -> None:
    assert FULL.seconds == 1.5
    assert (FULL.state_rows, FULL.state_bytes) == (15, 700)
    assert dataclasses.replace(FULL, ended=None).seconds is None


def test_a_copy_does_not_share_mappings() -> None:
    plain = FULL.to_dict()
    plain["state"]["balances"]["rows"] = 0
    plain["phases"]["execute"] = 0.0
    assert FULL.state["balances"].rows == 10
    assert FULL.phases["execute"] == 1.2
