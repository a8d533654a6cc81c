"""Long work: asked for here, carried out by processes of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import time_text
from holdfast.client import models, requests
from holdfast.control.job_files import allowed_file, declared_jobs
from holdfast.control.launch import Launch
from holdfast.control.registry import JobRow
from holdfast.control.session import room_for, wanted_claim
from holdfast.control.tracked.cancelling import cancel
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.plans import PLANNED
from holdfast.control.tracked.pruning import prune
from holdfast.control.tracked.record import OperationState
from holdfast.errors import ConflictError, UsageError, shorten
from holdfast.server.access.roles import Actor, Role
from holdfast.server.service import convert
from holdfast.server.service.backend import Backend
from holdfast.server.service.cursors import bad_cursor
from holdfast.server.service.jobs import JobService


class OperationService:
    def __init__(self, backend: Backend, jobs: JobService) -> None:
        self._backend, self._jobs = backend, jobs

    # -- reading ----------------------------------------------------------------------

    def get(self, operation_id: str) -> models.Operation:
        return convert.operation(self._backend.operations.get(operation_id))

    def page(
        self,
        *,
        job: str | None = None,
        state: OperationState | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> models.Page[models.Operation]:
        found = self._backend.operations.newest(
            job=job, state=state, before=_place(cursor), limit=limit + 1
        )
        shown = found[:limit]
        more = len(found) > limit
        return models.Page(
            items=[convert.operation(each) for each in shown],
            next=f"{time_text(shown[-1].created)}~{shown[-1].id}" if more else None,
        )

    # -- asking -----------------------------------------------------------------------

    def start(
        self, actor: Actor, request: requests.StartRequest, *, key: str | None = None
    ) -> models.Operation:
        """A file that is not a job yet, or one that is."""
        with self._backend.audit.change(
            actor, "start", job=request.name or request.job
        ) as line:
            actor.require(Role.OPERATOR)
            job, parameters = self._start_parameters(request)
            line["job"] = job
            return self._ask(actor, job, "start", parameters, line, key=key)

    def ask(
        self,
        actor: Actor,
        job: str,
        request: requests.OperationRequest,
        *,
        key: str | None = None,
        version: str | None = None,
    ) -> models.Operation:
        """Anything on a job that is known. `version`: refused if the job is another by now."""
        with self._backend.audit.change(actor, request.kind, job=job) as line:
            actor.require(Role.OPERATOR)
            self._jobs.require_version(job, version)
            holder, parameters = self._parameters(job, request)
            return self._ask(actor, holder, request.kind, parameters, line, key=key)

    def plan(
        self, actor: Actor, job: str, request: requests.OperationRequest
    ) -> models.Operation:
        """What it would do. Changes nothing, but runs the job's code to compare it."""
        with self._backend.audit.change(actor, "plan", job=job, of=request.kind) as line:
            actor.require(Role.OPERATOR)
            if request.kind not in PLANNED:
                raise UsageError(
                    "NOTHING_TO_PLAN",
                    f"{request.kind} changes no state, so there is nothing to plan.",
                    fix=f"ask for a plan of: {', '.join(PLANNED)}.",
                )
            holder, parameters = self._parameters(job, request)
            told = {"operation": request.kind, "parameters": parameters}
            return self._ask(actor, holder, "plan", told, line)

    def of_savepoint(
        self, actor: Actor, savepoint: str, request: requests.OperationRequest
    ) -> models.Operation:
        """`verify` and `export`."""
        with self._backend.audit.change(actor, request.kind, savepoint=savepoint) as line:
            actor.require(Role.OPERATOR)
            found = self._backend.savepoints.by_id(savepoint)
            job = line["job"] = found.manifest.identity.name
            return self._ask(actor, job, request.kind, {"savepoint": savepoint}, line)

    def cancel(self, actor: Actor, operation_id: str) -> models.Operation:
        """End the process that is at it, and let the job have another operation."""
        with self._backend.audit.change(
            actor, "cancel operation", operation=operation_id
        ) as line:
            actor.require(Role.OPERATOR)
            line["job"] = self._backend.operations.get(operation_id).job
            ended = cancel(self._backend.operations, operation_id, asked_by=actor.name)
            return convert.operation(ended)

    def prune(self) -> int:
        """Forget old ones; how many."""
        backend = self._backend
        kept = backend.settings.server_operations_kept
        logs = backend.dispatcher.logs
        return prune(backend.operations, logs, kept=kept, clock=backend.clock)

    def _ask(
        self,
        actor: Actor,
        job: str,
        kind: str,
        parameters: dict[str, Any],
        line: dict[str, Any],
        *,
        key: str | None = None,
    ) -> models.Operation:
        with self._room(actor, job, kind, parameters.get("parallelism"), key):
            operation, new = self._backend.operations.add(
                job,
                kind,
                parameters,
                asked_by=actor.name,
                exclusive=KINDS[kind].exclusive,
                key=key,
            )
        line["operation"] = operation.id
        if new:
            self._backend.dispatcher.start(operation)
        return convert.operation(operation)

    def _room(
        self, actor: Actor, job: str, kind: str, parallelism: int | None, key: str | None
    ) -> AbstractContextManager[None]:
        """For a start; one that is asked for again has got its room."""
        backend = self._backend
        known = backend.operations.by_key(actor.name, key) is not None
        if known or not KINDS[kind].starts:
            return nullcontext()
        wanted = wanted_claim(backend.registry, job, parallelism, backend.settings)
        return room_for(backend.registry, wanted, backend.settings)

    # -- from what was asked to what is kept ------------------------------------------

    def _parameters(
        self, job: str, request: requests.OperationRequest
    ) -> tuple[str, dict[str, Any]]:
        """The job that it holds, and what the process is told: paths are real and allowed."""
        parameters = request.parameters()
        if isinstance(request, requests.StartRequest):
            return self._start_parameters(request)
        row = self._backend.job(job)
        if isinstance(request, requests.UpgradeRequest):
            return row.name, parameters | {"app": str(self._file(request.app))}
        if isinstance(request, requests.RollbackRequest):
            self._require_origin(request.origin)
        if isinstance(request, requests.CompareRequest):
            return row.name, parameters | {"other": self._backend.job(request.other).name}
        if isinstance(request, requests.ForkRequest):
            return request.name, self._fork_parameters(row, request)
        return row.name, parameters

    def _start_parameters(self, request: requests.StartRequest) -> tuple[str, dict[str, Any]]:
        app = self._file(request.app)
        if request.start_from is not None:
            self._require_origin(request.start_from)
        known = self._known_launch(app)
        job = request.name or request.job or self._only_job(app)
        directory = known.directory if known else app.parent
        _require_directory(directory, request.directory)
        parameters = request.parameters() | {
            "app": str(app),
            "job_name": request.job,
            "directory": str(directory),
        }
        del parameters["job"]
        return job, parameters

    def _fork_parameters(self, row: JobRow, request: requests.ForkRequest) -> dict[str, Any]:
        launch = Launch.from_spec(row.name, row.spec)
        if request.savepoint is not None:
            self._backend.savepoints.by_id(request.savepoint)
        _require_directory(launch.directory, request.directory)
        own_code = request.app is None
        return {
            "of": request.savepoint or row.name,
            "app": str(launch.app if own_code else self._file(str(request.app))),
            "directory": str(launch.directory),
            "job_name": request.job or (launch.job_name if own_code else None),
            "parallelism": request.parallelism,
            "arguments": request.arguments,
            "available_now": request.available_now,
            "allow_dropped": request.allow_dropped,
        }

    def _require_origin(self, origin: str) -> None:
        if not origin.startswith("checkpoint:"):
            self._backend.savepoints.by_id(origin)

    def _file(self, wanted: str) -> Path:
        roots, rows = self._backend.settings.server_job_roots, self._backend.registry.jobs()
        return allowed_file(wanted, roots, rows)

    def _known_launch(self, app: Path) -> Launch | None:
        """How the file was started before: its relative paths mean the same again."""
        for row in self._backend.registry.jobs():
            launch = row.spec.get("launch") or {}
            if launch.get("app") == str(app):
                return Launch.from_spec(row.name, row.spec)
        return None

    def _only_job(self, app: Path) -> str:
        jobs = declared_jobs(app)
        if len(jobs) != 1:
            raise UsageError(
                "JOB_UNCLEAR",
                f"which job of {app} is meant? It has: {', '.join(jobs) or 'none in sight'}.",
                fix='say which: "job": NAME.',
            )
        return jobs[0]


def _require_directory(directory: Path, expected: str | None) -> None:
    """Relative paths of a job start there. It can be asked for, but not chosen from afar."""
    if expected not in (None, str(directory)):
        raise ConflictError(
            "DIRECTORY_DIFFERS",
            f"it would run in {directory}, and not in {shorten(expected)}; relative paths of "
            "sources and sinks start there.",
            fix="leave the directory out, or start the job with `holdfast run` in that one.",
        )


def _place(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    moment, _, operation_id = cursor.partition("~")
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise bad_cursor() from None
    if at.tzinfo is None:
        raise bad_cursor()
    return at, operation_id
