"""Time from the start of a process to its first committed epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.bench import inputs, programs, report
from holdfast.bench.measure import Failed
from holdfast.bench.report import Bar
from holdfast.bench.section import PROCESS, TWS, Result, Row, Section, Summary, Work

_COLD_START_REPEATS = 3
_COLD_START_RECORDS = 100
_COLD_START_BAR = 1.2


def _plan_cold_start(work: Work) -> list[Row]:
    folder, source = work.folder / "runs" / "cold-start", _few_edits(work)
    rows = []
    for turn in range(work.scaled(_COLD_START_REPEATS)):
        spark = programs.plain(
            "transform-with-state", folder / f"spark-{turn}", source=source, files_per_epoch=1
        )
        ours = programs.holdfast(
            "bench-process", folder / f"holdfast-{turn}", source=source, files_per_epoch=1
        )
        pair = [
            Row(name=name, program=program, batch=_COLD_START_RECORDS, source=source)
            for name, program in ((TWS, spark), (PROCESS, ours))
        ]
        rows += pair if turn % 2 == 0 else pair[::-1]
    return rows


def _few_edits(work: Work) -> Path:
    return work.folder / "inputs" / "few-edits"


def _prepare_cold_start(work: Work) -> None:
    # The second file is for a warm epoch to compare the first one with.
    inputs.edits(_few_edits(work), files=2, file_records=_COLD_START_RECORDS, users=50)


def _summarise_cold_start(results: Sequence[Result]) -> Summary:
    rows: list[dict[str, Any]] = []
    for name in (TWS, PROCESS):
        runs = [result for result in results if result.row.name == name]
        found = [report.cold_start(result.run) for result in runs if result.run]
        starts = [asdict(start) for start in found if start is not None]
        failures = [r.outcome.reason for r in runs if isinstance(r.outcome, Failed)]
        rows.append(
            {
                "name": name,
                "failed": "; ".join(failures) or None,
                "turns": len(starts),
                "runs": starts,
                **report.medians(starts),
            }
        )
    for row in rows:
        row["to_tws"] = report.ratio(row.get("total"), rows[0].get("total"))
    bar = Bar(
        what=f"{PROCESS} against {TWS}",
        bar=_COLD_START_BAR,
        measured=rows[1]["to_tws"],
        at_least=False,
    )
    return {"rows": rows, "bars": [bar.to_dict()]}


SECTION = Section(
    name="cold-start",
    plan=_plan_cold_start,
    prepare=_prepare_cold_start,
    summarise=_summarise_cold_start,
)
