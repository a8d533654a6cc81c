"""Records per second of a running total per user, next to plain Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.bench import inputs, programs, report
from holdfast.bench.report import Bar
from holdfast.bench.section import (
    GROUP_BY,
    LARGE_BATCH,
    PROCESS,
    PROCESS_BATCH,
    PROCESS_ROCKSDB,
    SMALL_BATCH,
    TWS,
    Result,
    Row,
    Section,
    Summary,
    Work,
)
from holdfast.bench.states import check_states

AGGREGATE = "holdfast .aggregate"
ROLLING = "holdfast .rolling"

_TWS_FILES = {SMALL_BATCH: 12, LARGE_BATCH: 20}
"""It is slow: 600,000 records show its rate at 100,000 per batch, a million at 500,000."""

_EVERY_BATCH = ((PROCESS_BATCH, PROCESS, 1.5), (AGGREGATE, GROUP_BY, 0.9))
_BARS = (
    ((PROCESS, TWS, 8.0), (PROCESS_ROCKSDB, TWS, 4.0), *_EVERY_BATCH),
    ((PROCESS, TWS, 15.0), *_EVERY_BATCH),
)
"""For small and for large batches: what, against what, and how many times as fast."""


def _plan_throughput(work: Work) -> list[Row]:
    sizes = (SMALL_BATCH, LARGE_BATCH)
    return [row for files in sizes for row in _throughput_rows(work, files)]


def _throughput_rows(work: Work, files: int) -> list[Row]:
    folder, few = work.folder / "runs" / "throughput", _first_edits(work, files)

    def plain(name: str, query: str, source: Path, kind: str) -> Row:
        place = folder / f"{query}-{files}"
        program = programs.plain(query, place, source=source, files_per_epoch=files)
        return Row(
            name=name, program=program, batch=work.batch(files), source=source, kind=kind
        )

    def ours(name: str, job: str, kind: str) -> Row:
        place = folder / f"{job}-{files}"
        program = programs.holdfast(job, place, source=work.edits, files_per_epoch=files)
        return Row(
            name=name, program=program, batch=work.batch(files), source=work.edits, kind=kind
        )

    return [
        plain(TWS, "transform-with-state", few, "value"),
        plain(GROUP_BY, "group-by", work.edits, "native"),
        ours(PROCESS, "bench-process", "process"),
        ours(PROCESS_ROCKSDB, "bench-process-rocksdb", "entries"),
        ours(PROCESS_BATCH, "bench-process-batch", "process"),
        ours(AGGREGATE, "bench-aggregate", "native"),
        ours(ROLLING, "bench-rolling", "native"),
    ]


def _first_edits(work: Work, files: int) -> Path:
    return work.edits.with_name(f"{work.edits.name}-first-{_TWS_FILES[files]}")


def _prepare_throughput(work: Work) -> None:
    work.make_edits()
    for files, count in _TWS_FILES.items():
        inputs.first_files(_first_edits(work, files), work.edits, count)


def _summarise_throughput(results: Sequence[Result]) -> Summary:
    rows = []
    for result in results:
        epochs = report.steady(result.run.epochs) if result.run else []
        rows.append(
            result.common()
            | {
                "records": sum(epoch.rows for epoch in result.run.epochs) if result.run else 0,
                "steady_batches": len(epochs),
                "records_per_second": report.records_per_second(epochs),
                "median_batch_seconds": report.median_seconds(epochs),
                "exact": result.exact,
            }
        )
    for row in rows:
        for figure, base in (("to_tws", TWS), ("to_group_by", GROUP_BY)):
            rate = report.find(rows, "records_per_second", name=base, batch=row["batch"])
            row[figure] = report.ratio(row["records_per_second"], rate)
    return {"rows": rows, "bars": [bar.to_dict() for bar in _throughput_bars(rows)]}


def _throughput_bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    def rate(name: str, batch: int) -> float | None:
        return report.find(rows, "records_per_second", name=name, batch=batch)

    # Smallest first: the bars differ by the size of the batch, whatever the scale.
    batches = sorted({row["batch"] for row in rows})
    return [
        Bar(
            what=f"{fast} against {slow}, {batch:,} per batch",
            bar=bar,
            measured=report.ratio(rate(fast, batch), rate(slow, batch)),
        )
        for batch, bars in zip(batches, _BARS, strict=True)
        for fast, slow, bar in bars
    ]


SECTION = Section(
    name="throughput",
    plan=_plan_throughput,
    prepare=_prepare_throughput,
    check=check_states,
    summarise=_summarise_throughput,
)
