"""A key group's part of Spark's state store, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.state.log import Head


@dataclass
class StoredGroup:
    head: Head | None = None
    blocks: dict[int, bytes] = field(default_factory=dict)


class BatchStore:
    """A key group's part of the state store inside one batch: a copy until it commits."""

    def __init__(self, committed: StoredGroup) -> None:
        self.group = StoredGroup(committed.head, dict(committed.blocks))

    def read_head(self) -> Head | None:
        return self.group.head

    def write_head(self, head: Head) -> None:
        self.group.head = head

    def read_block(self, sequence: int) -> bytes | None:
        return self.group.blocks.get(sequence)

    def write_block(self, sequence: int, block: bytes) -> None:
        self.group.blocks[sequence] = block

    def remove_block(self, sequence: int) -> None:
        del self.group.blocks[sequence]

    def wake_at(self, time: int) -> None:
        """The harness visits every key group in every epoch."""
