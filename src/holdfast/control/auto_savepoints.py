"""Savepoints that a job takes by itself, every now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.savepoint.store import Savepoint, SavepointStore

LABEL = "automatic"
_PATIENCE_SECONDS = 10.0
Tell = Callable[[str, str], None]
"""Told the kind of an event, and a sentence."""


class AutoSavepoints:
    """In a thread of its own: a copy to another file system may take long, and a supervisor
    has to keep its lease meanwhile."""

    def __init__(
        self,
        job: str,
        store: SavepointStore,
        *,
        every: timedelta | None,
        kept: int,
        take: Callable[[str], Savepoint],
        tell: Tell,
        clock: Clock,
    ) -> None:
        """`take` takes one, under a label."""
        self._job, self._store, self._every, self._kept = job, store, every, kept
        self._take, self._tell, self._clock = take, tell, clock
        self._thread: threading.Thread | None = None
        self._next: datetime | None = None

    def consider(self) -> None:
        """Begin one, if it is time; returns at once. Call it when an epoch is committed."""
        if self._every is None or (self._thread is not None and self._thread.is_alive()):
            return
        if self._next is None:
            last = self._own()[-1:]
            self._next = last[0].manifest.created + self._every if last else self._clock.now()
        if self._clock.now() < self._next:
            return
        self._next = self._clock.now() + self._every
        self._thread = threading.Thread(target=self._run, name="savepoint", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """One that is under way is waited for; one that takes too long was never there."""
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            taken = self._take(LABEL).manifest
            self._tell("savepoint", f"savepoint {taken.id} of epoch {taken.epoch}.")
            for old in self._own()[: -self._kept]:
                self._store.delete(old)
        except HoldfastError as error:
            self._tell("savepoint_failed", f"{error.name}: {error.message}")

    def _own(self) -> list[Savepoint]:
        return [each for each in self._store.all(self._job) if each.manifest.label == LABEL]
