"""Jobs as they are now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.record import EpochStatus
from holdfast.client import models
from holdfast.control.job_views import came_from, measured, per_second, process_is_there
from holdfast.control.redaction import redacted
from holdfast.control.registry import AttemptRow, JobRow
from holdfast.control.running import directory_of, is_running
from holdfast.control.states import RunState
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.record import Operation
from holdfast.errors import ConflictError, HoldfastError
from holdfast.server.service import convert
from holdfast.server.service.backend import Backend

RECENT = 20
"""Epochs that a job's rate and its little chart are made of."""


class JobService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._registry = backend.registry

    def page(
        self,
        *,
        contains: str = "",
        states: Iterable[RunState] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> models.Page[models.JobSummary]:
        rows = self._registry.jobs_page(
            name_contains=contains, states=states, after=cursor, limit=limit + 1
        )
        shown = rows[:limit]
        attempts, held = self._registry.last_attempts(), self._held()
        return models.Page(
            items=[
                models.JobSummary(**self._summary(row, attempts.get(row.id), held))
                for row in shown
            ],
            next=shown[-1].name if len(rows) > limit else None,
        )

    def get(self, name: str) -> models.JobDetails:
        row = self._backend.job(name)
        attempt = self._last_attempt(row)
        identity = identity_of(row)
        launch = row.spec.get("launch") or {}
        return models.JobDetails(
            **self._summary(row, attempt, self._held()),
            created=row.created,
            timeline=identity.timeline if identity else None,
            timelines=len(identity.timelines) if identity else 0,
            parallelism=identity.parallelism if identity else row.spec.get("parallelism"),
            key_groups=identity.key_groups if identity else None,
            backend=identity.backend if identity else None,
            code=identity.code if identity else "",
            came_from=came_from(row),
            forked_from=identity.fork.job if identity and identity.fork else None,
            app=launch.get("app"),
            directory=str(row.spec.get("directory", "")),
            spec=redacted(row.spec),
            info=redacted(attempt.info) if attempt else {},
        )

    def require_version(self, name: str, version: str | None) -> None:
        """Refuse a change that was made up from an older look at the job."""
        if version is None:
            return
        row = self._backend.job(name)
        now = _version(row, self._last_attempt(row), self._held().get(row.name))
        if version != now:
            raise ConflictError(
                "JOB_CHANGED",
                f"job {name!r} has changed since it was looked at.",
                fix="look again, and decide anew.",
                version=now,
            )

    def _last_attempt(self, row: JobRow) -> AttemptRow | None:
        return self._registry.last_attempts().get(row.id)

    def _held(self) -> dict[str, Operation]:
        """Operations that keep others from a job; a plan, for example, does not."""
        return {
            each.job: each
            for each in self._backend.operations.open()
            if KINDS[each.kind].exclusive
        }

    def _summary(
        self, row: JobRow, attempt: AttemptRow | None, held: Mapping[str, Operation]
    ) -> dict[str, Any]:
        recent = [
            record
            for record in self._registry.epochs(row.id, RECENT)
            if record.status is EpochStatus.COMMITTED
        ]
        last = recent[-1] if recent else self._registry.last_epoch(row.id)
        known = measured(recent)
        told = known[-1] if known else last
        alive, running = process_is_there(row, attempt), _is_running(row)
        operation = held.get(row.name)
        since = attempt.started if attempt is not None and running else None
        return {
            "name": row.name,
            "id": row.id,
            "state": row.state.value,
            "alive": alive,
            "running": running,
            "attempt": attempt.number if attempt else None,
            "pid": attempt.pid if attempt and alive else None,
            "host": attempt.host if attempt else None,
            "started": attempt.started if attempt else None,
            "updated": row.updated,
            "uptime_seconds": (
                None if since is None else (self._backend.clock.now() - since).total_seconds()
            ),
            "restarts": max(0, attempt.number - 1) if attempt else 0,
            "epoch": last.epoch if last else None,
            "epoch_ended": told.ended if told else None,
            "rows_per_second": per_second(sum(each.input_rows for each in known), known),
            "recent_rows": [record.input_rows for record in recent],
            "lag": sum(told.lag.values()) if told and told.lag else None,
            "state_rows": told.state_rows if told else None,
            "state_bytes": told.state_bytes if told else None,
            "watermark": told.watermark if told else None,
            "error": convert.trouble(attempt.error) if attempt else None,
            "operation": operation.id if operation else None,
            "version": _version(row, attempt, operation),
        }


def identity_of(row: JobRow) -> JobIdentity | None:
    """What the job's own files say of it; None if it has not run, or cannot be read."""
    with suppress(HoldfastError, KeyError):
        return directory_of(row).load()
    return None


def _is_running(row: JobRow) -> bool:
    with suppress(HoldfastError, KeyError):
        return is_running(row)
    return False


def _version(row: JobRow, attempt: AttemptRow | None, operation: Operation | None) -> str:
    """Changes with what people change, and not with every epoch."""
    parts = [
        row.id,
        row.state.value,
        row.updated.isoformat(),
        json.dumps(dict(row.spec), sort_keys=True, default=str),
        str(attempt.number if attempt else 0),
        operation.id if operation else "",
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
