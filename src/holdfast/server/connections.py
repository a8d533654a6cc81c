"""Connections that do not get to the point: half a request, and then nothing.

uvicorn waits for the rest of a request as long as it takes. Somebody who opens many of these
would keep all others out, without a login.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvicorn

PATIENCE_SECONDS = 25.0
"""Longer than a connection is kept open between two requests."""
_LOOK_SECONDS = 0.5


class Connections:
    def __init__(self, server: uvicorn.Server, patience: float = PATIENCE_SECONDS) -> None:
        self._server, self.patience = server, patience
        self._idle_since: dict[Any, float] = {}

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Close those that have had no request under way for too long."""
        now = time.monotonic()
        idle = {each for each in self._server.server_state.connections if _is_idle(each)}
        self._idle_since = {each: self._idle_since.get(each, now) for each in idle}
        for connection, since in self._idle_since.items():
            if now - since > self.patience and connection.transport is not None:
                connection.transport.abort()


def _is_idle(connection: Any) -> bool:
    """Web sockets have no cycle of their own, and are never idle in this sense."""
    if not hasattr(connection, "cycle"):
        return False
    cycle = connection.cycle
    return cycle is None or bool(cycle.response_complete)
