"""Scripts inside of NiceGUI's pages get a nonce, so that no other script inside one can run.

What pages show is in them as JSON with `<` escaped, so each `<script` is NiceGUI's own.
"""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.access.headers import page_policy


class Nonces:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun: Message | None = None
        body = b""

        async def sending(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start" and _is_page(message):
                begun = message
                return
            if begun is None:
                await send(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            nonce = secrets.token_urlsafe(18)
            whole = body.replace(b"<script", f'<script nonce="{nonce}"'.encode())
            headers = MutableHeaders(scope=begun)
            headers["Content-Length"] = str(len(whole))
            headers["Content-Security-Policy"] = page_policy(nonce)
            await send(begun)
            await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, sending)


def _is_page(message: Message) -> bool:
    return MutableHeaders(scope=message).get("x-nicegui-content") == "page"
