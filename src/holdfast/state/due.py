"""Which keys have something due, without looking at those that have not."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any


class DueQueue:
    """Keys by the earliest time at which each wants to be looked at.

    A key may be looked at too early (what it waited for was deleted or put off); it then
    notes its next time. So nothing is ever searched for or removed from the middle.
    """

    __slots__ = ("_heap", "_noted", "_ticket")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._noted: dict[Any, int] = {}
        self._ticket = 0

    def note(self, time: int, key: Any) -> None:
        """Look at `key` at `time`, or earlier if that was wanted before."""
        noted = self._noted.get(key)
        if noted is None or time < noted:
            self._noted[key] = time
            self._ticket += 1  # keys need not be comparable
            heappush(self._heap, (time, self._ticket, key))

    def keep(self, time: int, key: Any) -> None:
        """As `note`, for a time that has been noted before, after an earlier one of the key."""
        self.note(time, key)

    def take_due(self, until: int) -> list[Any]:
        """Remove and return the keys whose time is `until` or earlier."""
        found = []
        while self._heap and self._heap[0][0] <= until:
            time, _, key = heappop(self._heap)
            if self._noted.get(key) == time:
                del self._noted[key]
                found.append(key)
        return found

    def next(self) -> int | None:
        """The earliest time at which a key wants to be looked at."""
        while self._heap:
            time, _, key = self._heap[0]
            if self._noted.get(key) == time:
                return time
            heappop(self._heap)
        return None
