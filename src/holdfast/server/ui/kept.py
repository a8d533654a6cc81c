"""Files of NiceGUI's pages, kept as they were sent once.

NiceGUI reads and compresses a file again for every browser that asks for it, piece by piece and
through several layers; a first visit asks for some forty of them. Their addresses have the
version in them, so what was sent once is right for as long as the process lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nicegui import __version__
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = f"/_nicegui/{__version__}/"
_MADE_UP = f"{PREFIX}dynamic_resources/"
"""What a page has made up itself, and may change."""
_CONDITIONS = ("range", "if-none-match", "if-modified-since", "if-range", "if-match")


@dataclass
class _Answer:
    headers: list[tuple[bytes, bytes]]
    pieces: list[bytes] = field(default_factory=list)


class Kept:
    """Only whole answers to plain requests are kept; files that are not there never are, so it
    cannot grow beyond what NiceGUI and the widgets have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, bool], tuple[list[tuple[bytes, bytes]], bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_file(scope):
            await self._app(scope, receive, send)
            return
        key = (scope["path"], "gzip" in Headers(scope=scope).get("accept-encoding", ""))
        found = self._kept.get(key)
        if found is not None:
            headers, body = found
            # A list of its own: who sends it on adds headers of this answer.
            start = {"type": "http.response.start", "status": 200, "headers": [*headers]}
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, self._noting(key, send))

    def _noting(self, key: tuple[str, bool], send: Send) -> Send:
        answer: _Answer | None = None

        async def noting(message: Message) -> None:
            nonlocal answer
            if message["type"] == "http.response.start" and message["status"] == 200:
                answer = _Answer([*message["headers"]])
            elif message["type"] == "http.response.body" and answer is not None:
                answer.pieces.append(message.get("body", b""))
                if not message.get("more_body"):
                    self._kept[key] = _whole(answer)
            await send(message)

        return noting


def _is_file(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path: str = scope["path"]
    if not path.startswith(PREFIX) or path.startswith(_MADE_UP):
        return False
    headers = Headers(scope=scope)
    return not any(name in headers for name in _CONDITIONS)


def _whole(answer: _Answer) -> tuple[list[tuple[bytes, bytes]], bytes]:
    body = b"".join(answer.pieces)
    headers = [each for each in answer.headers if each[0].lower() != b"content-length"]
    return [*headers, (b"content-length", str(len(body)).encode())], body
