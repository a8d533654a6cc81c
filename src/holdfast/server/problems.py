"""Errors as RFC 9457 says them, with the names that the command line uses."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from holdfast.client.models import Problem
from holdfast.control.redaction import redacted, redacted_text
from holdfast.errors import (
    AccessError,
    ConflictError,
    CorruptionError,
    DataError,
    EnvironmentProblem,
    HoldfastError,
    NotFoundError,
    UsageError,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
STATUS_OF_FAMILY: tuple[tuple[type[HoldfastError], int], ...] = (
    (UsageError, 400),
    (AccessError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (DataError, 422),
    (CorruptionError, 422),
    (EnvironmentProblem, 503),
    (HoldfastError, 500),
)
STATUS_OF_NAME = {
    "LOGIN_REQUIRED": 401,
    "LOGIN_REFUSED": 401,
    "HOST_NOT_ALLOWED": 421,
    "JOB_CHANGED": 412,
    "BODY_TOO_LARGE": 413,
    "BODY_NOT_JSON": 415,
    "REQUEST_INVALID": 422,
    "TOO_MANY_LOGINS": 429,
    "STATE_BUSY": 429,
    "DISK_FULL": 507,
}
"""Names whose meaning has a status of its own."""


def status_of(error: HoldfastError) -> int:
    by_family = next(status for family, status in STATUS_OF_FAMILY if isinstance(error, family))
    return STATUS_OF_NAME.get(error.name, by_family)


def problem_of(error: HoldfastError, path: str) -> Problem:
    """What goes out. An error of the server itself is told by its name and an id alone: the
    rest is for the log."""
    status = status_of(error)
    base: dict[str, Any] = {
        "type": f"urn:holdfast:{error.name}",
        "title": error.name.replace("_", " ").capitalize(),
        "status": status,
        "instance": path,
        "name": error.name,
        "kind": type(error).__name__,
    }
    if status < 500:
        return Problem(
            **base,
            detail=redacted_text(error.message),
            fix=redacted_text(error.fix),
            facts=redacted(dict(error.facts)),
        )
    problem_id = secrets.token_hex(8)
    logger.error("server error id=%s path=%s error=%s", problem_id, path, error)
    return Problem(**base, detail="The server's log has more under this id.", id=problem_id)


def answer(error: HoldfastError, path: str, headers: dict[str, str] | None = None) -> Response:
    problem = problem_of(error, path)
    return Response(
        problem.model_dump_json(exclude_none=True),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


async def send(
    error: HoldfastError,
    scope: Scope,
    receive: Receive,
    send_message: Send,
    headers: dict[str, str] | None = None,
) -> None:
    """From below FastAPI, where there are no handlers yet."""
    await answer(error, scope.get("path", ""), headers)(scope, receive, send_message)


def install(app: FastAPI) -> None:
    @app.exception_handler(HoldfastError)
    async def known(request: Request, error: HoldfastError) -> Response:
        return answer(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # The values themselves are left out: one of them may be a secret in the wrong place.
        wrong = [
            {"where": ".".join(str(part) for part in each["loc"]), "what": each["msg"]}
            for each in error.errors()
        ]
        first = wrong[0] if wrong else {"where": "", "what": "is not valid"}
        told = UsageError(
            "REQUEST_INVALID",
            f"{first['where']}: {first['what']}",
            fix="GET /api/v1/openapi.json says what is wanted.",
            wrong=wrong,
        )
        return answer(told, request.url.path)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        names = {404: "ROUTE_NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
        name = names.get(error.status_code, "REQUEST_REFUSED")
        body = Problem(
            type=f"urn:holdfast:{name}",
            title=name.replace("_", " ").capitalize(),
            status=error.status_code,
            instance=request.url.path,
            name=name,
            kind="UsageError",
        )
        return Response(
            body.model_dump_json(exclude_none=True),
            status_code=error.status_code,
            media_type=MEDIA_TYPE,
            headers=dict(error.headers or {}),
        )

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        logger.exception("unexpected error path=%s", request.url.path, exc_info=error)
        told = HoldfastError("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        return answer(told, request.url.path)
