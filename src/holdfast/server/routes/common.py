"""What all routes share: the service, who asks, and a declared role for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from holdfast.client.models import Operation, Problem
from holdfast.errors import AccessError
from holdfast.server.access.roles import Actor, Role
from holdfast.server.service import Service

ROLE_MARK = "x-holdfast-role"
PREFIX = "/api/v1"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def actor(request: Request) -> Actor:
    found: Actor = request.state.actor
    return found


ServiceHere = Annotated[Service, Depends(service)]
ActorHere = Annotated[Actor, Depends(actor)]
JobName = Annotated[
    str, Path(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$", description="Name of the job.")
]
SavepointId = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,95}$", description="Id of the savepoint.")
]
OperationId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]
StateOf = Annotated[
    str,
    Path(
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$",
        description="Name of a job, or id of a savepoint.",
    ),
]
Cursor = Annotated[
    str | None, Query(max_length=200, description="`next` of the page before this one.")
]
Limit = Annotated[int, Query(ge=1, le=500)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Asking again with the same key is asking once.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=100,
        pattern=r"^[\x21-\x7e]+$",
        description="The job's ETag: refused if the job is another by now.",
    ),
]


def version_of(if_match: str | None) -> str | None:
    return None if if_match in (None, "*") else str(if_match).removeprefix("W/").strip('"')


def accepted(operation: Operation, response: Response) -> Operation:
    response.headers["Location"] = f"{PREFIX}/operations/{operation.id}"
    return operation


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of errors."""
    return {
        status: {"model": Problem, "description": _MEANING[status], "content": _PROBLEM}
        for status in statuses
    }


_MEANING = {
    400: "The request is wrong.",
    401: "Not logged in.",
    403: "Not allowed.",
    404: "Not there.",
    409: "Somebody else holds it, or it does not fit.",
    412: "It has changed since it was looked at.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "Not a name of this server.",
    422: "A field is wrong, or the data is.",
    429: "Too many at once, or too many failed logins.",
    500: "An error of the server; its log has more.",
    503: "Something that the server needs is not there.",
}


class OpenMetrics(Response):
    media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Routes:
    """A router on which no route can be added without saying who may use it."""

    def __init__(self, tag: str, description: str) -> None:
        self.router = APIRouter(prefix=PREFIX, tags=[tag])
        self.tag = {"name": tag, "description": description}

    def get(self, path: str, role: Role = Role.VIEWER, **options: Any) -> Callable[..., Any]:
        return self._add("get", path, role, (400, 401, 403, 404, 422, 500, 503), options)

    def post(self, path: str, role: Role = Role.OPERATOR, **options: Any) -> Callable[..., Any]:
        statuses = (400, 401, 403, 404, 409, 412, 413, 415, 422, 429, 500, 503)
        return self._add("post", path, role, statuses, options)

    def delete(
        self, path: str, role: Role = Role.OPERATOR, **options: Any
    ) -> Callable[..., Any]:
        statuses = (400, 401, 403, 404, 409, 422, 500, 503)
        return self._add("delete", path, role, statuses, options)

    def _add(
        self,
        method: str,
        path: str,
        role: Role,
        statuses: tuple[int, ...],
        options: dict[str, Any],
    ) -> Callable[..., Any]:
        responses = described(*statuses) | options.pop("responses", {})
        add: Callable[..., Any] = getattr(self.router, method)(
            path,
            dependencies=[Depends(_required(role))],
            responses=responses,
            openapi_extra={ROLE_MARK: role.value},
            **options,
        )
        return add


def _required(role: Role) -> Callable[[Request], None]:
    def check(request: Request) -> None:
        who = actor(request)
        try:
            who.require(role)
        except AccessError:
            # The service would note it as well, but a wrong body keeps requests from there.
            with service(request).backend.audit.change(who, "refused by role"):
                raise

    return check
