"""Changes as they happen (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from fastapi.responses import StreamingResponse

from holdfast.server.events import Watcher
from holdfast.server.routes.common import Routes

routes = Routes(
    "events",
    "Changes as they happen. A stream begins with `reset`, also after a reconnect: read what "
    "you show anew, then apply what comes. Last-Event-ID is not needed and not looked at.",
)
KEEP_ALIVE_SECONDS = 15.0
STREAM = {200: {"content": {"text/event-stream": {}}, "description": "Events, without end."}}


@routes.get("/events", response_class=StreamingResponse, responses=STREAM)
async def listen(request: Request) -> StreamingResponse:
    """`job` (state changed), `epoch` (begun or ended), `operation` (anything new), `reset`."""
    watcher: Watcher = request.app.state.watcher
    return StreamingResponse(
        _text(watcher), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _text(watcher: Watcher) -> AsyncIterator[str]:
    changes = watcher.listen()
    waiting = asyncio.ensure_future(anext(changes))
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield ": still here\n\n"
                continue
            yield waiting.result().text()
            waiting = asyncio.ensure_future(anext(changes))
    finally:
        waiting.cancel()
