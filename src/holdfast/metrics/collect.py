"""From the registry to metric families.

Everything is computed from what the registry keeps, so a counter goes on where it was,
whichever process answers.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

import holdfast
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, parse_time
from holdfast.checkpoint.spark_files import spark_source_name
from holdfast.checkpoint.waiting import Waiting, waiting_files
from holdfast.clock import Clock, SystemClock
from holdfast.control.registry import AttemptRow, JobRow, Registry
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError
from holdfast.failure import FailureClass
from holdfast.metrics.families import Sheet
from holdfast.metrics.labels import (
    MOST_KINDS,
    MOST_PHASES,
    MOST_UIDS,
    bounded,
    folded,
    words,
)
from holdfast.metrics.queries import (
    EpochTotals,
    Totals,
    attempt_counts,
    event_counts,
    last_record,
    restart_counts,
)
from holdfast.types import parse_duration

LAG = "lag"
"""Where an epoch record says, by source uid, how many records are still to be read."""


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """What is known about one job."""

    job: JobRow
    now: datetime
    attempts: int
    last_attempt: AttemptRow | None
    restarts: Mapping[str, int]
    """By class of the failure."""
    events: Mapping[str, int]
    """By label."""
    totals: EpochTotals
    last: Mapping[str, Any] | None
    """The record of the last committed epoch, as stored."""
    waiting: Mapping[str, Waiting]
    """Input that is still to be read, by source."""


def collect(
    registry: Registry,
    *,
    job: str | None = None,
    totals: Totals | None = None,
    clock: Clock | None = None,
) -> Iterable[Metric]:
    """The metrics of all jobs, or of one by name.

    Somebody who asks again and again keeps `totals`.
    """
    sheet = Sheet()
    version = {"version": holdfast.__version__, "python": platform.python_version()}
    sheet.info("holdfast_build_info", version)
    for figures in _figures(registry, job, totals or Totals(registry), clock or SystemClock()):
        fill(sheet, figures)
    return sheet.families()


def exposition(families: Iterable[Metric]) -> bytes:
    """The OpenMetrics text."""
    text: bytes = generate_latest(_Once(families))  # type: ignore[no-untyped-call]
    return text


class _Once:
    """What the library takes for a registry of its own."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _figures(
    registry: Registry, name: str | None, totals: Totals, clock: Clock
) -> Iterable[JobFigures]:
    attempts, last_attempts = attempt_counts(registry), registry.last_attempts()
    restarts, happened = restart_counts(registry), event_counts(registry)
    kinds = words((kind for _, kind in happened), MOST_KINDS)
    for job in registry.jobs():
        if name is not None and job.name != name:
            continue
        yield JobFigures(
            job=job,
            now=clock.now(),
            attempts=attempts.get(job.id, 0),
            last_attempt=last_attempts.get(job.id),
            restarts={reason: n for (owner, reason), n in restarts.items() if owner == job.id},
            events=_whole(
                folded(
                    {kind: n for (owner, kind), n in happened.items() if owner == job.id},
                    kinds,
                )
            ),
            totals=totals.of(job.id),
            last=last_record(registry, job.id),
            waiting=_waiting(job, clock),
        )


def _waiting(job: JobRow, clock: Clock) -> dict[str, Waiting]:
    path = Path(job.spec.get("directory", ""))
    if not path.is_dir():
        return {}
    try:
        identity = JobDirectory.at(path).load()
    except HoldfastError:
        return {}
    if identity is None:
        return {}
    known = waiting_files(path / identity.checkpoint, clock.now().timestamp())
    named = {spark_source_name(uid): uid for uid in identity.sources}
    return {named[name]: found for name, found in known.items() if name in named}


def fill(sheet: Sheet, figures: JobFigures) -> None:
    """Add one job to a sheet. Pure."""
    name, totals = figures.job.name, figures.totals
    for state in RunState:
        sheet.set("holdfast_job_state", int(figures.job.state is state), name, state)
    sheet.set("holdfast_job_attempts_total", figures.attempts, name)
    for reason in FailureClass:
        # Zeros too: only a counter that was there before can be seen to rise.
        count = figures.restarts.get(reason, 0)
        sheet.set("holdfast_job_restarts_total", count, name, reason)
    if figures.last_attempt is not None:
        started = figures.last_attempt.started.timestamp()
        sheet.set("holdfast_job_start_timestamp_seconds", started, name)
    for kind, count in figures.events.items():
        sheet.set("holdfast_job_events_total", count, name, kind)
    sheet.set("holdfast_checkpoints_completed_total", totals.committed, name)
    sheet.set("holdfast_checkpoints_failed_total", totals.interrupted, name)
    sheet.set("holdfast_checkpoint_interval_seconds", _interval(figures.job), name)
    sheet.set("holdfast_source_records_total", totals.input_rows, name)
    sheet.set("holdfast_skipped_records_total", totals.skipped_rows, name)
    _by_uid(sheet, "holdfast_sink_records_total", name, totals.sink_rows)
    _by_uid(sheet, "holdfast_late_records_total", name, totals.late_rows)
    files = {uid: found.files for uid, found in figures.waiting.items()}
    _by_uid(sheet, "holdfast_source_waiting_files", name, files)
    seconds = {uid: found.seconds for uid, found in figures.waiting.items()}
    _by_uid(sheet, "holdfast_source_lag_seconds", name, seconds)
    _fill_lease(sheet, figures)
    if figures.last is not None:
        _fill_epoch(sheet, name, figures.last)


def _fill_epoch(sheet: Sheet, name: str, stored: Mapping[str, Any]) -> None:
    record = EpochRecord.from_dict(stored)
    phases = folded(record.phases, words(record.phases, MOST_PHASES))
    for phase, seconds in phases.items():
        sheet.set("holdfast_checkpoint_duration_seconds", seconds, name, phase)
    sheet.set("holdfast_epoch_duration_seconds", record.seconds, name)
    ended = (record.ended or record.started).timestamp()
    sheet.set("holdfast_checkpoint_last_completed_timestamp_seconds", ended, name)
    sheet.set("holdfast_checkpoint_last_id", record.epoch, name)
    sheet.set("holdfast_checkpoint_size_bytes", record.checkpoint_bytes, name)
    rows = {uid: size.rows for uid, size in record.state.items()}
    _by_uid(sheet, "holdfast_state_rows", name, rows)
    size = {uid: size.bytes for uid, size in record.state.items()}
    _by_uid(sheet, "holdfast_state_bytes", name, size)
    if record.watermark is not None:
        reached = record.watermark.timestamp()
        sheet.set("holdfast_watermark_timestamp_seconds", reached, name)
    known = {uid: n for uid, n in (stored.get(LAG) or {}).items() if n is not None}
    _by_uid(sheet, "holdfast_source_lag_records", name, known)


def _fill_lease(sheet: Sheet, figures: JobFigures) -> None:
    lease, name = figures.job.lease, figures.job.name
    if lease is None:
        return
    sheet.set("holdfast_lease_epoch", lease.get("epoch"), name)
    renewed = parse_time(lease.get("renewed"))
    if renewed is not None:
        # Clocks of two machines may differ; an age below zero would be nonsense.
        age = max(0.0, (figures.now - renewed).total_seconds())
        sheet.set("holdfast_supervisor_heartbeat_age_seconds", age, name)


def _by_uid(sheet: Sheet, metric: str, name: str, amounts: Mapping[str, float]) -> None:
    for uid, amount in folded(amounts, bounded(amounts, MOST_UIDS)).items():
        sheet.set(metric, amount, name, uid)


def _whole(amounts: Mapping[str, float]) -> dict[str, int]:
    return {label: int(amount) for label, amount in amounts.items()}


def _interval(job: JobRow) -> float | None:
    """From the spec, where it is the text that the user wrote, or that of a number."""
    text = str(job.spec.get("checkpoint", {}).get("interval", ""))
    try:
        return parse_duration(text).total_seconds()
    except HoldfastError:
        return float(text) if text.replace(".", "", 1).isdigit() else None
