"""What changes, as it changes: one watcher reads the registry, and all listeners hear of it.

The registry is looked at twice a second, however many listen, and only while somebody does.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool

from holdfast.errors import HoldfastError
from holdfast.server.service import Service, convert

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_MOST_WAITING = 1000
"""A listener that is further behind is sent away, and reads anew."""


@dataclass(frozen=True)
class Change:
    """`kind` is `job`, `epoch`, `operation`, or `reset`: read everything anew."""

    number: int
    kind: str
    data: dict[str, Any]

    def text(self) -> str:
        """As a server-sent event."""
        return f"id: {self.number}\nevent: {self.kind}\ndata: {json.dumps(self.data)}\n\n"


@dataclass
class _Seen:
    """What the last look saw, to tell what is new."""

    jobs: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    epochs: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)


class Watcher:
    def __init__(self, service: Service, look_seconds: float = LOOK_SECONDS) -> None:
        self._service, self._look_seconds = service, look_seconds
        self._listeners: set[asyncio.Queue[Change]] = set()
        self._callbacks: set[Callable[[Change], None]] = set()
        self._seen: _Seen | None = None
        self._number = 0

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back in the event loop, until what is returned is called."""
        self._callbacks.add(callback)
        return lambda: self._callbacks.discard(callback)

    async def listen(self) -> AsyncIterator[Change]:
        """Begins with `reset`, and nothing is missed from there on: what came before is to be
        read, not heard."""
        queue: asyncio.Queue[Change] = asyncio.Queue(_MOST_WAITING)
        if self._seen is not None:
            queue.put_nowait(Change(self._number, "reset", {}))
        # Otherwise the first look, from which on changes are seen, says so.
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    async def run(self) -> None:
        while True:
            if self._listeners or self._callbacks:
                await self._look()
            else:
                self._seen = None
            await asyncio.sleep(self._look_seconds)

    async def _look(self) -> None:
        try:
            changes = await run_in_threadpool(self._changes)
        except HoldfastError as error:
            logger.warning("the registry could not be looked at name=%s", error.name)
            return
        for kind, data in changes:
            self._number += 1
            self._tell(Change(self._number, kind, data))

    def _tell(self, change: Change) -> None:
        for queue in list(self._listeners):
            if queue.full():
                # Too slow: what it has missed it cannot make up for by hearing more.
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(Change(change.number, "reset", {}))
            else:
                queue.put_nowait(change)
        for callback in list(self._callbacks):
            with suppress(Exception):
                callback(change)

    def _changes(self) -> list[tuple[str, dict[str, Any]]]:
        """What is new since the last look. Runs in a thread."""
        backend = self._service.backend
        first = self._seen is None
        seen = self._seen = self._seen or _Seen()
        found: list[tuple[str, dict[str, Any]]] = []
        names = {}
        for job in backend.registry.jobs():
            names[job.id] = job.name
            now = (job.state, job.updated)
            if seen.jobs.get(job.name) != now:
                seen.jobs[job.name] = now
                found.append(("job", {"job": job.name, "state": job.state.value}))
        for job_id, newest in backend.registry.newest_epochs().items():
            if seen.epochs.get(job_id) != newest and job_id in names:
                seen.epochs[job_id] = newest
                attempt, epoch, status = newest
                found.append(
                    (
                        "epoch",
                        {
                            "job": names[job_id],
                            "attempt": attempt,
                            "epoch": epoch,
                            "status": status,
                        },
                    )
                )
        for operation in backend.operations.newest(limit=100):
            if seen.operations.get(operation.id) != operation.updated:
                seen.operations[operation.id] = operation.updated
                shown = convert.operation(operation).model_dump(mode="json")
                found.append(("operation", shown))
        return [("reset", {})] if first else found
