"""How long a worker takes to load the state of key groups."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from holdfast.state.backend import Backend, Group


class TimedBackend:
    """A backend with a stopwatch. After a restart, loading is what an epoch waits for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.reads_by_key, self.end = backend.reads_by_key, backend.end
        self._seconds = 0.0

    def begin(self, store: Any, number: int) -> Group:
        began = perf_counter()
        group = self._backend.begin(store, number)
        self._seconds += perf_counter() - began
        return group

    def take_seconds(self) -> float:
        """Since the last time that this was asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
