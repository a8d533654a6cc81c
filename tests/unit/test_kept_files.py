"""Files of pages are sent from memory once they were sent; nothing else is."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.server.ui.kept import PREFIX, Kept


class Counted:
    """Answers in pieces, and counts how often it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.asked = status, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        encoded = "gzip" in dict(scope["headers"]).get(b"accept-encoding", b"").decode()
        body = (piece for piece in (b"one ", b"two ", b"gzip" if encoded else b"plain"))
        answer: Response = StreamingResponse(body, self.status, media_type="text/css")
        await answer(scope, receive, send)


class Adding:
    """Adds a header to each answer, as the checks of the server do."""

    def __init__(self, app: Kept) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: dict[str, object]) -> None:
            headers = message.get("headers")
            if isinstance(headers, list):
                headers.append((b"x-seen", b"1"))
            await send(message)

        await self._app(scope, receive, adding)  # type: ignore[arg-type]


def asked(counted: Counted, *requests: tuple[str, dict[str, str]]) -> list[httpx.Response]:
    app = Adding(Kept(counted))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            plain = {"Accept-Encoding": "identity"}
            return [await client.get(path, headers=plain | more) for path, more in requests]

    return asyncio.run(ask())


FILE = f"{PREFIX}static/a.css"


def test_a_file_is_made_once() -> None:
    counted = Counted()
    first, *others = asked(counted, *[(FILE, {})] * 3)
    assert (counted.asked, first.text) == (1, "one two plain")
    for each in others:
        assert (each.text, each.headers["content-type"]) == (
            first.text,
            "text/css; charset=utf-8",
        )
        assert each.headers["content-length"] == str(len(first.content))
        assert each.headers.get_list("x-seen") == ["1"]


def test_what_is_compressed_is_kept_apart() -> None:
    counted = Counted()
    zipped, plain = {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "identity"}
    found = asked(counted, (FILE, zipped), (FILE, plain), (FILE, zipped))
    assert [each.text.split()[-1] for each in found] == ["gzip", "plain", "gzip"]
    assert counted.asked == 2


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 200),
        ("/ui/pages.css", {}, 200),
        (f"{PREFIX}dynamic_resources/x", {}, 200),
        (FILE, {"Range": "bytes=0-1"}, 200),
        (FILE, {"If-None-Match": "x"}, 200),
        (FILE, {}, 404),
        (FILE, {}, 304),
    ],
)
def test_nothing_else_is_kept(path: str, headers: dict[str, str], status: int) -> None:
    counted = Counted(status)
    asked(counted, (path, headers), (path, headers))
    assert counted.asked == 2
