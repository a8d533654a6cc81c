"""How the pages come onto the application."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui
from nicegui.dependencies import esm_modules
from starlette.responses import Response
from starlette.staticfiles import PathLike, StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.server.ui.kept import PREFIX, Kept
from holdfast.server.ui.nonces import Nonces
from holdfast.server.ui.shell import ANCHOR
from holdfast.server.ui.widgets.base import LIBRARY

STATIC = Path(__file__).parent / "static"
FIRST_SIGHT = (
    '<div id="first" aria-hidden="true"><div class="top-row"><span class="brand">'
    f'<svg viewBox="0 0 24 24"><path d="{ANCHOR}"/></svg><span>holdfast</span>'
    "</span></div></div>"
)
"""Of the header, while the scripts that draw the page are on their way."""


def mount_pages(app: FastAPI) -> None:
    from holdfast.server.ui.pages import register

    logging.getLogger("nicegui").setLevel(logging.ERROR)
    app.mount("/ui", Files(directory=STATIC), name="ui")
    register()
    ui.add_head_html(_head(), shared=True)
    ui.add_body_html(FIRST_SIGHT, shared=True)
    pages_app.add_middleware(Nonces)
    ui.run_with(
        app,
        title="holdfast",
        favicon=STATIC / "mark.svg",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=30.0,
        binding_refresh_interval=None,
    )
    pages_app.add_middleware(Kept)  # behind the server's checks, before all that NiceGUI does
    app.add_middleware(WithServer, server=app)


def _head() -> str:
    def address(name: str) -> str:
        """Another one when the file is another one, so that browsers may keep it."""
        return f"/ui/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"

    return "\n".join(
        [
            f'<link rel="stylesheet" href="{address("theme.css")}">',
            f'<link rel="stylesheet" href="{address("pages.css")}">',
            f'<script src="{address("shell.js")}"></script>',
            *(f'<link rel="modulepreload" href="{each}">' for each in _found_late()),
        ]
    )


def _found_late() -> Iterator[str]:
    """Modules that a browser would hear of only when it has read those that import them."""
    yield f"{PREFIX}static/dompurify.mjs"
    for key, module in esm_modules.items():
        if module.name == LIBRARY:
            yield f"{PREFIX}esm/{key}/index.js"


class Files(StaticFiles):
    """A file that was asked for by its hash is never another one."""

    def file_response(
        self,
        full_path: PathLike,
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        if scope["query_string"]:
            answer.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        return answer


class WithServer:
    """Tells pages which server they belong to: NiceGUI's application is another one."""

    def __init__(self, app: ASGIApp, server: FastAPI) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["server"] = self._server
        await self._app(scope, receive, send)
