"""Pages for addresses that lead nowhere."""

from __future__ import annotations

from nicegui import Client, app, ui
from nicegui.page import page as page_of
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.server.ui.here import Here
from holdfast.server.ui.shell import went_wrong


def register() -> None:
    @app.exception_handler(404)
    async def not_found(request: Request, _: Exception) -> Response:
        error = NotFoundError(
            "PAGE_NOT_FOUND",
            f"there is no page {request.url.path}.",
            fix="the navigation above leads to all that there are.",
        )
        return error_page(request, error, 404)

    app.on_page_exception(unexpected)


def error_page(request: Request, error: HoldfastError, status: int) -> Response:
    with Client(page_of(""), request=request) as client:
        went_wrong(Here.of(request), error)
    return client.build_response(request, status)


def unexpected(_: Exception) -> None:
    """The log has the rest: a page tells no more than REST does."""
    request = ui.context.client.request
    error = HoldfastError(
        "INTERNAL_ERROR", "the page could not be made.", fix="the server's log has more."
    )
    went_wrong(Here.of(request), error)
