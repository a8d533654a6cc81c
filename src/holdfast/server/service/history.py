"""What has happened to a job: attempts, failures, epochs, events, and what they add up to."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.checkpoint.record import EpochRecord
from holdfast.client import models
from holdfast.control.growth import growth
from holdfast.control.job_views import (
    heap_limit_of,
    measured,
    process_is_there,
    sink_rows,
    source_rows,
)
from holdfast.control.registry import JobRow
from holdfast.control.states import RunState
from holdfast.metrics.queries import Totals
from holdfast.server.service import convert
from holdfast.server.service.backend import Backend
from holdfast.server.service.cursors import numbers
from holdfast.server.service.graph import graph_of
from holdfast.server.service.jobs import identity_of

LOOKED_AT = 200
"""Epochs that positions and growth are made of."""
NEWEST = 20
"""Epochs that rates, and whether a job falls behind, are made of."""
MOST_FAILURES = 100


class HistoryService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._registry = backend.registry
        self._totals = Totals(backend.registry)

    def _measured(self, row: JobRow, looked_at: int = LOOKED_AT) -> list[EpochRecord]:
        return measured(self._registry.epochs(row.id, looked_at))

    # -- as it was --------------------------------------------------------------------

    def attempts(
        self, job: str, *, cursor: str | None = None, limit: int = 50
    ) -> models.Page[models.Attempt]:
        """The newest first."""
        before = numbers(cursor, 1)
        rows = self._registry.attempts(self._backend.job(job).id)[::-1]
        found = [row for row in rows if before is None or row.number < before[0]]
        more = len(found) > limit
        return models.Page(
            items=[convert.attempt(row) for row in found[:limit]],
            next=str(found[limit - 1].number) if more else None,
        )

    def failures(self, job: str) -> list[models.Failure]:
        """The newest first."""
        rows = self._registry.attempts(self._backend.job(job).id)
        last = rows[-1].number if rows else 0
        return [
            models.Failure(
                attempt=row.number,
                at=row.ended or row.started,
                failure_class=row.failure_class,
                error=error,
                retried=row.number < last,
            )
            for row in reversed(rows)
            if (error := convert.trouble(row.error)) is not None
        ][:MOST_FAILURES]

    def epochs(
        self, job: str, *, cursor: str | None = None, limit: int = 50
    ) -> models.Page[models.Epoch]:
        """The newest first."""
        place = numbers(cursor, 2)
        before = None if place is None else (place[0], place[1])
        found = self._registry.epochs(self._backend.job(job).id, limit + 1, before=before)[::-1]
        shown = found[:limit]
        more = len(found) > limit
        return models.Page(
            items=[convert.epoch(record) for record in shown],
            next=f"{shown[-1].attempt}.{shown[-1].epoch}" if more else None,
        )

    def events(self, job: str, *, limit: int = 100) -> list[models.Event]:
        """The newest first."""
        found = self._registry.events(self._backend.job(job).id, limit)
        return [convert.event(each) for each in reversed(found)]

    def timelines(self, job: str) -> list[models.Timeline]:
        identity = identity_of(self._backend.job(job))
        if identity is None:
            return []
        return [
            models.Timeline(**asdict(each), current=each.name == identity.timeline)
            for each in identity.timelines
        ]

    # -- what it adds up to -----------------------------------------------------------

    def sources(self, job: str) -> list[models.SourceState]:
        return self._sources(self._measured(self._backend.job(job)))

    def _sources(self, committed: list[EpochRecord]) -> list[models.SourceState]:
        waited_for = committed[-1].waited_for if committed else {}
        return [
            models.SourceState(**each, waited_for=waited_for.get(each["source"]))
            for each in source_rows(committed)
        ]

    def sinks(self, job: str) -> list[models.SinkState]:
        row = self._backend.job(job)
        found = sink_rows(self._measured(row), self._registry.sink_totals(row.id))
        return [models.SinkState(**each) for each in found]

    def steps(self, job: str) -> list[models.StepState]:
        row = self._backend.job(job)
        limit = heap_limit_of(row, self._backend.settings.heap_limit)
        found = growth(self._measured(row), limit)
        return [models.StepState(**asdict(each)) for each in found]

    def watermarks(self, job: str) -> models.Watermarks:
        row = self._backend.job(job)
        committed = self._measured(row)
        last = committed[-1] if committed else None
        behind = None
        if last is not None and last.watermark is not None:
            behind = ((last.ended or last.started) - last.watermark).total_seconds()
        return models.Watermarks(
            watermark=last.watermark if last else None,
            behind_seconds=behind,
            late_rows=dict(self._totals.of(row.id).late_rows),
            late_in_last_epoch=dict(last.late) if last else {},
            sources=self._sources(committed),
        )

    def graph(self, job: str) -> models.Graph:
        row = self._backend.job(job)
        return graph_of(identity_of(row), self._measured(row, NEWEST))

    def health(self, job: str) -> models.Health:
        row = self._backend.job(job)
        attempts = self._registry.attempts(row.id)
        last = attempts[-1] if attempts else None
        reasons = []
        if process_is_there(row, last) is False:
            reasons.append("its process is gone; `holdfast resume` runs it again")
        if row.state is RunState.FAILED:
            failed = last.error if last else None
            reasons.append(f"it failed: {failed.name}" if failed else "it failed")
        if reasons:
            return models.Health(job=row.name, status="failed", reasons=reasons)
        if not row.state.is_active:
            return models.Health(job=row.name, status="stopped", reasons=[])
        if row.state is RunState.RESTARTING:
            reasons.append("it is waiting to be restarted")
        committed = self._measured(row, NEWEST)
        if _falls_behind(committed):
            reasons.append("it falls behind: its sources have more and more to read")
        return models.Health(
            job=row.name, status="warning" if reasons else "ok", reasons=reasons
        )


def _falls_behind(committed: list[EpochRecord]) -> bool:
    """Whether the lag grew over the newest epochs, and is more than what a few epochs read."""
    lags = [sum(record.lag.values()) for record in committed if record.lag]
    if len(lags) < 5:
        return False
    typical = sum(record.input_rows for record in committed) / len(committed)
    return lags[-1] > lags[len(lags) // 2] > lags[0] and lags[-1] > 3 * typical
