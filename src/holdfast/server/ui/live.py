"""Pages that keep up: read anew after a change, at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nicegui import background_tasks

from holdfast.errors import HoldfastError
from holdfast.server.events import Change
from holdfast.server.ui.here import Here, trouble_of
from holdfast.server.ui.widgets import Notice

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.7
"""Between two readings, however much changes."""
SLOW_SECONDS = 5.0
"""What no change tells of, such as a process that is gone, is seen after this."""


class Live:
    """Calls `read` after changes that matter, as long as the page is open."""

    def __init__(
        self,
        here: Here,
        read: Callable[[], Awaitable[None]],
        *,
        matters: Callable[[Change], bool] = lambda _: True,
        notice: Notice | None = None,
        slow: float = SLOW_SECONDS,
    ) -> None:
        self._here, self._read, self._matters = here, read, matters
        self._notice, self._slow = notice, slow
        self._changed = asyncio.Event()
        self._stop = here.watcher.on_change(self._heard)
        self._task = background_tasks.create(self._run(), name="live page")
        here.client.on_delete(self.end)

    def soon(self) -> None:
        """Read anew without waiting for a change."""
        self._changed.set()

    def end(self) -> None:
        self._stop()
        self._task.cancel()

    def _heard(self, change: Change) -> None:
        if change.kind == "reset" or self._matters(change):
            self._changed.set()

    async def _run(self) -> None:
        while not self._here.client.is_deleted:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._slow)
            self._changed.clear()
            if self._here.client.has_socket_connection:
                await self._once()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _once(self) -> None:
        with self._here.client:
            try:
                await self._read()
            except HoldfastError as error:
                if self._notice is not None:
                    self._notice.trouble(trouble_of(error))
            except Exception:
                # A page that stands still without a word would be worse than one that is late.
                logger.exception("a page could not be read anew")
            else:
                if self._notice is not None:
                    self._notice.trouble(None)


def of_job(name: str) -> Callable[[Change], bool]:
    return lambda change: change.data.get("job") == name
