"""A key group's entries in memory, with counts of what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class MemoryEntries:
    """An EntryStore for tests. A batch works on a :meth:`copy`; to commit is to keep it."""

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self.entries = dict(entries or {})
        self.calls = self.gets = self.puts = self.removes = 0

    def copy(self) -> MemoryEntries:
        return MemoryEntries(self.entries)

    @property
    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self.entries.items())

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.calls += 1
        self.gets += len(keys)
        return [self.entries.get(key) for key in keys]

    def put_many(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        self.calls += 1
        self.puts += len(items)
        self.entries.update(items)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        self.calls += 1
        self.removes += len(keys)
        for key in keys:
            self.entries.pop(key, None)
