"""What exactly-once files cost more than Spark's own file sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.bench import programs, report
from holdfast.bench.measure import Failed
from holdfast.bench.report import Bar
from holdfast.bench.section import (
    LARGE_BATCH,
    SMALL_BATCH,
    Progress,
    Result,
    Row,
    Section,
    Summary,
    Work,
)

SPARK_FILES = "Spark's file sink"
OUR_FILES = "hf.sinks.Files"

_FILE_SINK_REPEATS = 2
_FILE_SINK_BAR = 1.15


def _plan_file_sink(work: Work) -> list[Row]:
    """In turns, and the other way round in the second round: a machine's mood drifts."""
    rows = []
    for files in (SMALL_BATCH, LARGE_BATCH):
        for turn in range(_FILE_SINK_REPEATS):
            pair = _file_sink_pair(work, files, turn)
            rows += pair if turn % 2 == 0 else pair[::-1]
    return rows


def _file_sink_pair(work: Work, files: int, turn: int) -> list[Row]:
    folder = work.folder / "runs" / "file-sink"
    spark = programs.plain(
        "file-sink",
        folder / f"spark-{files}-{turn}",
        source=work.edits,
        files_per_epoch=files,
    )
    ours = programs.holdfast(
        "bench-files",
        folder / f"holdfast-{files}-{turn}",
        source=work.edits,
        files_per_epoch=files,
    )
    return [
        Row(name=name, program=program, batch=work.batch(files), source=work.edits)
        for name, program in ((SPARK_FILES, spark), (OUR_FILES, ours))
    ]


def _check_files(work: Work, results: Sequence[Result], progress: Progress) -> dict[int, bool]:
    wanted = _count_and_sum(work.edits)
    return {
        at: _count_and_sum(result.row.program.out) == wanted
        for at, result in enumerate(results)
        if result.run
    }


def _count_and_sum(folder: Path) -> tuple[int, int]:
    diffs = ds.dataset(folder, format="parquet").to_table(columns=["diff"])["diff"]
    return len(diffs), pc.sum(diffs).as_py()


def _summarise_file_sink(results: Sequence[Result]) -> Summary:
    rows = []
    for batch in sorted({result.row.batch for result in results}):
        for name in (SPARK_FILES, OUR_FILES):
            runs = [
                result
                for result in results
                if (result.row.batch, result.row.name) == (batch, name)
            ]
            rows.append(_file_sink_row(runs))
    for row in rows:
        spark = report.find(rows, "median_batch_seconds", name=SPARK_FILES, batch=row["batch"])
        row["to_spark"] = report.ratio(row["median_batch_seconds"], spark)
    bars = [
        Bar(
            what=f"{OUR_FILES} against {SPARK_FILES}, {row['batch']:,} per batch",
            bar=_FILE_SINK_BAR,
            measured=row["to_spark"],
            at_least=False,
        ).to_dict()
        for row in rows
        if row["name"] == OUR_FILES
    ]
    return {"rows": rows, "bars": bars}


def _file_sink_row(runs: Sequence[Result]) -> dict[str, Any]:
    """One row of all the turns: the median of their steady batches together."""
    epochs = [
        epoch for result in runs if result.run for epoch in report.steady(result.run.epochs)
    ]
    row = runs[0].common()
    row["failed"] = (
        "; ".join(
            result.outcome.reason for result in runs if isinstance(result.outcome, Failed)
        )
        or None
    )
    peaks = [result.run.memory for result in runs if result.run]
    row["peak_memory"] = asdict(max(peaks, key=lambda peak: peak.total)) if peaks else None
    row["batch_seconds"] = [result.common()["batch_seconds"] for result in runs]
    verdicts = [result.exact for result in runs if result.exact is not None]
    return row | {
        "turns": len(runs),
        "median_batch_seconds": report.median_seconds(epochs),
        "exact": all(verdicts) if verdicts else None,
    }


SECTION = Section(
    name="file-sink",
    plan=_plan_file_sink,
    prepare=Work.make_edits,
    check=_check_files,
    summarise=_summarise_file_sink,
)
