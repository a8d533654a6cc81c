"""A key group's part of Spark's state store, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.testing.entries import MemoryEntries


@dataclass
class StoredGroup:
    """What is committed of a key group: a log of blocks, or entries, by backend."""

    head: Any = None
    blocks: dict[int, bytes] = field(default_factory=dict)
    entries: dict[bytes, bytes] = field(default_factory=dict)
    broadcast: bytes | None = None


class BatchStore:
    """A key group's part of the state store inside one batch: a copy until it commits."""

    def __init__(self, committed: StoredGroup) -> None:
        self.entries = MemoryEntries(committed.entries)
        self.group = StoredGroup(
            committed.head, dict(committed.blocks), self.entries.entries, committed.broadcast
        )

    def read_head(self, likely: int | None = None) -> Any:
        return self.group.head

    def write_head(self, head: Any) -> None:
        self.group.head = head

    def read_blocks(self, sequences: Sequence[int]) -> list[bytes | None]:
        return [self.group.blocks.get(sequence) for sequence in sequences]

    def write_block(self, sequence: int, block: bytes) -> None:
        self.group.blocks[sequence] = block

    def remove_block(self, sequence: int) -> None:
        del self.group.blocks[sequence]

    def read_broadcast(self) -> bytes | None:
        return self.group.broadcast

    def write_broadcast(self, state: bytes) -> None:
        self.group.broadcast = state

    def wake_at(self, time: int) -> None:
        """The harness visits every key group in every epoch."""
