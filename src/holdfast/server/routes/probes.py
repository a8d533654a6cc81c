"""What machines ask: is it alive, is it ready, what are its figures."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from holdfast.errors import HoldfastError
from holdfast.server.routes.common import ROLE_MARK, OpenMetrics, ServiceHere

router = APIRouter(tags=["probes"])


@router.get("/livez", response_class=PlainTextResponse)
def alive() -> str:
    """The server answers."""
    return "ok\n"


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={503: {"description": "The registry does not answer."}},
)
def ready(service: ServiceHere) -> Response:
    """The server can do its work: the registry answers."""
    try:
        is_ready = service.machine.is_ready()
    except HoldfastError:
        is_ready = False
    if is_ready:
        return PlainTextResponse("ok\n")
    return PlainTextResponse("not ready\n", status_code=503)


@router.get("/metrics", response_class=OpenMetrics, openapi_extra={ROLE_MARK: "viewer"})
def metrics(service: ServiceHere) -> OpenMetrics:
    """The metrics of all jobs in the OpenMetrics format."""
    return OpenMetrics(service.machine.metrics())
