"""Time of the same batch while ever more timers are pending that do not fire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.bench import inputs, programs, report
from holdfast.bench.report import Bar
from holdfast.bench.section import (
    HEAP_LIMIT,
    PROCESS,
    PROCESS_ROCKSDB,
    SMALL_BATCH,
    Progress,
    Result,
    Row,
    Section,
    Summary,
    Work,
)

_TIMERS = (0, 100_000, 1_000_000)
_NEAR_TIMERS = 1_000
_PLAIN_KEYS = 100_000
_PRELOAD_EPOCHS = 2
"""The same for every number of timers, or the JVM would be warmer where there are more."""
_EPOCHS = 20
_WARM_UP = 8
_GROWTH_BAR = 1.2
_JOBS = ((PROCESS, "bench-reminders"), (PROCESS_ROCKSDB, "bench-reminders-rocksdb"))


def _plan_timers(work: Work) -> list[Row]:
    return [
        _timers_row(work, timers, name, job)
        for timers in _timer_counts(work)
        for name, job in _JOBS
    ]


def _timers_row(work: Work, timers: int, name: str, job: str) -> Row:
    source = _timed_keys(work, timers)
    program = programs.holdfast(
        job,
        work.folder / "runs" / "timers" / f"{job}-{timers}",
        source=source,
        files_per_epoch=SMALL_BATCH,
        settings={"heap_limit": HEAP_LIMIT},
    )
    return Row(
        name=name,
        program=program,
        batch=work.batch(SMALL_BATCH),
        timers=timers,
        near_timers=_near_timers(work),
        source=source,
        skip_epochs=_PRELOAD_EPOCHS + _WARM_UP,
    )


def _timer_counts(work: Work) -> list[int]:
    return [work.scaled(timers, at_least=0) for timers in _TIMERS]


def _near_timers(work: Work) -> int:
    return work.scaled(_NEAR_TIMERS, at_least=10)


def _timed_keys(work: Work, timers: int) -> Path:
    return work.folder / "inputs" / f"reminders-{timers}-{work.file_records}"


def _prepare_timers(work: Work) -> None:
    for timers in _timer_counts(work):
        inputs.timed_keys(
            _timed_keys(work, timers),
            far=timers,
            # As much state in every row: what differs is the timers alone.
            idle=max(_timer_counts(work)) - timers,
            near=_near_timers(work),
            plain=work.scaled(_PLAIN_KEYS, at_least=100),
            preload_epochs=_PRELOAD_EPOCHS,
            epochs=_EPOCHS,
            file_records=work.file_records,
        )


def _check_fired(work: Work, results: Sequence[Result], progress: Progress) -> dict[int, bool]:
    return {
        at: report.rows_beyond_input(result.run.events) == result.row.near_timers
        for at, result in enumerate(results)
        if result.run
    }


def _summarise_timers(results: Sequence[Result]) -> Summary:
    rows = []
    for result in results:
        epochs = result.run.epochs[result.row.skip_epochs :] if result.run else []
        rows.append(
            result.common()
            | {
                "timers": result.row.timers,
                "median_batch_seconds": report.median_seconds(epochs),
                "longest_batch_seconds": report.longest_seconds(epochs),
                "near_timers": result.row.near_timers,
                "fired": report.rows_beyond_input(result.run.events) if result.run else None,
                "exact": result.exact,
            }
        )
    for row in rows:
        none = report.find(rows, "median_batch_seconds", name=row["name"], timers=0)
        row["growth"] = report.ratio(row["median_batch_seconds"], none)
    most = max(row["timers"] for row in rows)
    bars = [
        Bar(
            what=f"{name}, a batch with {most:,} timers against one with none",
            bar=_GROWTH_BAR,
            measured=report.find(rows, "growth", name=name, timers=most),
            at_least=False,
        ).to_dict()
        for name, _ in _JOBS
    ]
    return {"rows": rows, "bars": bars}


SECTION = Section(
    name="timers",
    plan=_plan_timers,
    prepare=_prepare_timers,
    check=_check_fired,
    summarise=_summarise_timers,
)
