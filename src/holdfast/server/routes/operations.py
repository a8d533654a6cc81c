"""Long work: asked for by POST, looked at under its own address."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from holdfast.client import models, requests
from holdfast.control.tracked.record import OperationState
from holdfast.server.routes.common import (
    PREFIX,
    ActorHere,
    Cursor,
    IdempotencyKey,
    IfMatch,
    JobName,
    Limit,
    OperationId,
    Routes,
    ServiceHere,
    accepted,
    version_of,
)

routes = Routes(
    "operations",
    "Work that takes long is a resource: POST answers 202 with its Location at once. A job has "
    "one operation at a time. Operations survive the server.",
)
ACCEPTED: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        202: {
            "description": "It has begun.",
            "headers": {
                "Location": {
                    "description": f"{PREFIX}/operations/ID",
                    "schema": {"type": "string"},
                }
            },
        }
    },
}


@routes.get("/operations")
def list_operations(
    service: ServiceHere,
    job: Annotated[str | None, Query(max_length=64)] = None,
    state: OperationState | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> models.Page[models.Operation]:
    """All operations, the newest first."""
    return service.operations.page(job=job, state=state, cursor=cursor, limit=limit)


@routes.get("/operations/{operation}")
def get_operation(operation: OperationId, service: ServiceHere) -> models.Operation:
    """How far it is, what it has said, and what it came to."""
    return service.operations.get(operation)


@routes.post("/operations/{operation}/cancel")
def cancel_operation(
    operation: OperationId, service: ServiceHere, actor: ActorHere
) -> models.Operation:
    """End it: its process is killed, and the job can have another operation. The error of the
    operation says how the job is now. To end a job, cancel the job."""
    return service.operations.cancel(actor, operation)


@routes.post("/jobs", **ACCEPTED)
def start_job(
    body: requests.StartRequest,
    service: ServiceHere,
    actor: ActorHere,
    response: Response,
    key: IdempotencyKey = None,
) -> models.Operation:
    """Start a file of this machine. Only files below the configured roots, and files that a job
    was started from before, can be."""
    return accepted(service.operations.start(actor, body, key=key), response)


def _operation(path: str, request: type[requests.OperationRequest]) -> None:
    """`POST /jobs/{job}/PATH`, and what it would do under `…/plan` beside it."""

    def ask(
        *,
        job: JobName,
        body: requests.OperationRequest,
        service: ServiceHere,
        actor: ActorHere,
        response: Response,
        key: IdempotencyKey = None,
        if_match: IfMatch = None,
    ) -> models.Operation:
        found = service.operations.ask(actor, job, body, key=key, version=version_of(if_match))
        return accepted(found, response)

    ask.__annotations__["body"] = request
    ask.__name__ = f"{request.kind}_job"
    ask.__doc__ = request.__doc__
    routes.post(f"/jobs/{{job}}/{path}", **ACCEPTED)(ask)


def _plan(request: type[requests.OperationRequest]) -> None:
    def plan(
        job: JobName,
        body: requests.OperationRequest,
        service: ServiceHere,
        actor: ActorHere,
        response: Response,
    ) -> models.Operation:
        return accepted(service.operations.plan(actor, job, body), response)

    plan.__annotations__["body"] = request
    plan.__name__ = f"plan_{request.kind}"
    plan.__doc__ = (
        f"What `{request.kind}` would do: what is restored, starts empty, is refused. Changes "
        "nothing; the plan is the operation's result."
    )
    routes.post(f"/jobs/{{job}}/plans/{request.kind}", **ACCEPTED)(plan)


for _path, _request in (
    ("resume", requests.ResumeRequest),
    ("stop", requests.StopRequest),
    ("suspend", requests.SuspendRequest),
    ("cancel", requests.CancelRequest),
    ("savepoints", requests.SavepointRequest),
    ("rescale", requests.RescaleRequest),
    ("rollback", requests.RollbackRequest),
    ("upgrade", requests.UpgradeRequest),
    ("forks", requests.ForkRequest),
    ("promote", requests.PromoteRequest),
    ("compare", requests.CompareRequest),
):
    _operation(_path, _request)

_PLANNED: tuple[type[requests.OperationRequest], ...] = (
    requests.RescaleRequest,
    requests.RollbackRequest,
    requests.UpgradeRequest,
    requests.ForkRequest,
    requests.PromoteRequest,
    requests.StartRequest,
)
for _planned in _PLANNED:
    _plan(_planned)
