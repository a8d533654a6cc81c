"""How the pages come onto the application."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui
from starlette.responses import Response
from starlette.staticfiles import PathLike, StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.server.ui.nonces import Nonces

STATIC = Path(__file__).parent / "static"


def mount_pages(app: FastAPI) -> None:
    from holdfast.server.ui.pages import register

    logging.getLogger("nicegui").setLevel(logging.ERROR)
    app.mount("/ui", Files(directory=STATIC), name="ui")
    ui.add_head_html(_head(), shared=True)
    register()
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
        ]
    )


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
