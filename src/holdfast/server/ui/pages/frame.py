"""How a page is made: who asks, and what is shown if it cannot be made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError
from holdfast.server.problems import status_of
from holdfast.server.ui.here import Here
from holdfast.server.ui.shell import went_wrong

PATIENCE_SECONDS = 30.0
Build = Callable[..., Awaitable[None]]


async def built(request: Request, build: Build, *args: Any) -> Response | None:
    """An error of the service becomes a page of its own, with the status that REST has."""
    here = Here.of(request)
    try:
        await build(here, *args)
    except HoldfastError as error:
        here.client.content.clear()
        went_wrong(here, error)
        return here.client.build_response(request, status_of(error))
    return None


def is_gone(job: models.JobSummary) -> bool:
    """Whether it should run, and neither its process nor anybody who would start it again is
    there."""
    return RunState(job.state).is_active and job.alive is False and not job.running


def page_at(path: str) -> ui.page:
    return ui.page(path, response_timeout=PATIENCE_SECONDS)
