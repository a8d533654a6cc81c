"""What the sinks write, type by type, and what the console shows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.storage.file_sink_log import committed_files
from spark.processes import RunningTotal
from spark.workplace import Workplace

SCHEMA = (
    "n bigint, name string, price decimal(10,2), day date, ts timestamp, "
    "tags array<string>, counts map<string,int>, point struct<x:double,y:double>, raw binary"
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FULL = (
    *(1, "Zoë 🦀", Decimal("12.50"), date(2026, 3, 1), NOON),
    *(["a", None], {"a": 1}, (0.5, None), b"\x00\xff"),
)
EMPTY = (2, *[None] * 8)


def copy(place: Workplace, rows: list[Any], schema: str, sink: hf.sinks.Sink) -> None:
    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection(rows, schema, rows_per_epoch=max(len(rows), 1))
        flow.sink("out", flow.source("in", source), sink)

    place.run(pipeline)


def test_parquet_has_every_type(place: Workplace) -> None:
    out = place.path / "out"
    copy(place, [FULL, EMPTY], SCHEMA, hf.sinks.Files(out))
    table = pa.concat_tables(pq.read_table(path) for path in committed_files(out))
    found = sorted(table.to_pylist(), key=lambda row: row["n"])
    expected = dict(zip(table.column_names, FULL, strict=True))
    expected |= {"counts": [("a", 1)], "point": {"x": 0.5, "y": None}}
    assert found == [expected, dict(zip(table.column_names, EMPTY, strict=True))]
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    (epoch,) = place.epochs()
    assert epoch.sinks["out"].rows == 2
    assert epoch.bytes_written == sum(path.stat().st_size for path in committed_files(out))


def test_json_lines_keep_null_fields(place: Workplace) -> None:
    out = place.path / "out"
    rows = [(1, "é\n"), (2, None)]
    copy(place, rows, "n bigint, name string", hf.sinks.Files(out, "json"))
    lines = [line for path in committed_files(out) for line in path.read_text().splitlines()]
    assert sorted(map(json.loads, lines), key=lambda row: row["n"]) == [
        {"n": 1, "name": "é\n"},
        {"n": 2, "name": None},
    ]


def test_epoch_without_rows_publishes_no_file(place: Workplace) -> None:
    out = place.path / "out"
    copy(place, [], "n bigint", hf.sinks.Files(out))
    assert committed_files(out) == []


def test_discard_computes_every_row(place: Workplace) -> None:
    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection([("a", 1), ("b", 2)] * 50, "user string, diff bigint")
        totals = flow.key_by(flow.source("in", source), "user").process("sum", RunningTotal())
        flow.sink("out", totals, hf.sinks.Discard())

    place.run(pipeline)
    assert [epoch.sinks["out"].rows for epoch in place.epochs()] == [100]
    assert place.epochs()[-1].state_rows == 2


def test_console_shows_the_first_rows(
    place: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(n, f"name {n} [bold]") for n in range(30)]
    copy(place, rows, "n bigint, name string", hf.sinks.Console(rows=3))
    shown = capsys.readouterr().out
    assert "out, epoch 0: 30 rows" in shown
    assert "name 2 [bold]" in shown
    assert "name 3" not in shown
