"""How a key group lies in its entries: the heap backend's log, or an entry per key.

Everything of a key group, its head included, lies in the same map of entries, so that it can be
asked for and written together. A request is a round trip to the JVM, and round trips are most
of what a small epoch costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.state.codec import dump, load
from holdfast.state.disk import DiskHead
from holdfast.state.entries import BROADCAST, HEAD, EntryStore, block_key
from holdfast.state.log import Head

WakeAt = Callable[[int], Any]


def _never(time: int) -> None:
    """Where nothing runs, nothing is waited for."""


class _GroupEntries:
    """What both backends need of it. Whoever made the entries knows which group it is."""

    def __init__(self, entries: EntryStore, wake_at: WakeAt = _never) -> None:
        self.entries, self.wake_at = entries, wake_at

    def read_broadcast(self) -> bytes | None:
        return self.entries.get_many([BROADCAST])[0]

    def write_broadcast(self, state: bytes) -> None:
        self.entries.put_many([(BROADCAST, state)])


class LogEntries(_GroupEntries):
    """For the heap backend: a log of blocks, and its head.

    Blocks are written when the head is: the two belong together.
    """

    def __init__(self, entries: EntryStore, wake_at: WakeAt = _never) -> None:
        super().__init__(entries, wake_at)
        self._ahead: tuple[int, bytes | None] | None = None
        self._puts: list[tuple[bytes, bytes]] = []
        self._removes: list[bytes] = []

    def read_head(self, likely: int | None = None) -> Head | None:
        """Also fetches block `likely`, in case it is asked for next."""
        self._puts, self._removes, self._ahead = [], [], None
        if likely is None:
            (packed,) = self.entries.get_many([HEAD])
        else:
            packed, block = self.entries.get_many([HEAD, block_key(likely)])
            self._ahead = likely, block
        if packed is None:
            return None
        sequence, base, tags, *rest = load(packed)
        return Head(sequence, base, tuple(tags), *rest)

    def read_blocks(self, sequences: Sequence[int]) -> list[bytes | None]:
        if self._ahead is not None and list(sequences) == [self._ahead[0]]:
            return [self._ahead[1]]
        return self.entries.get_many([block_key(sequence) for sequence in sequences])

    def write_block(self, sequence: int, block: bytes) -> None:
        self._puts.append((block_key(sequence), block))

    def remove_block(self, sequence: int) -> None:
        self._removes.append(block_key(sequence))

    def write_head(self, head: Head) -> None:
        fields = (
            head.sequence,
            head.base,
            head.tags,
            head.live_keys,
            head.log_rows,
            head.log_bytes,
            head.wake,
        )
        if self._removes:
            self.entries.remove_many(self._removes)
        self.entries.put_many([*self._puts, (HEAD, dump(fields))])


class KeyEntries(_GroupEntries):
    """For the rocksdb backend: an entry per key and variable, and a head."""

    def read_head(self) -> DiskHead | None:
        (packed,) = self.entries.get_many([HEAD])
        if packed is None:
            return None
        return DiskHead(*load(packed))

    def write_head(self, head: DiskHead) -> None:
        fields = (head.live_keys, head.stored_bytes, head.wake)
        self.entries.put_many([(HEAD, dump(fields))])
