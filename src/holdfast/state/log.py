"""The log of a key group: blocks by sequence number, and a head that says which count.

Spark commits both atomically with the batch. The head also names the last writers by
random tags. Workers of an executor are interchangeable, so a worker often holds state that
is a batch or two old: if its tag is still on the chain it reads just what it missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CHAIN_LENGTH = 16


@dataclass(frozen=True)
class Head:
    """What a key group's log holds, as of one batch."""

    sequence: int
    """Number of the newest block."""
    base: int
    """Number of the oldest block; it holds everything that came before it."""
    tags: tuple[str, ...]
    """Who wrote the newest blocks, newest last: tags[-1] wrote `sequence`."""
    live_keys: int
    log_rows: int
    log_bytes: int
    wake: int | None = None
    """When Spark's timer of the key group fires, in milliseconds."""

    def tag_of(self, sequence: int) -> str | None:
        at = len(self.tags) - 1 - (self.sequence - sequence)
        return self.tags[at] if 0 <= at < len(self.tags) else None

    def missed_since(self, sequence: int, tag: str) -> range | None:
        """The blocks that a worker at (sequence, tag) has not seen; None: it must reload."""
        if self.tag_of(sequence) != tag:
            return None  # it saw another history: a failed attempt's, or too old to tell
        if sequence < self.base:
            return None  # compacted since: the base does not name the keys that are gone
        return range(sequence + 1, self.sequence + 1)

    def all_blocks(self) -> range:
        return range(self.base, self.sequence + 1)


class GroupStore(Protocol):
    """One key group's part of the state store, inside one batch."""

    def read_head(self, likely: int | None = None) -> Head | None:
        """The head, if there is one. `likely` is a block that will probably be asked for."""

    def write_head(self, head: Head) -> None:
        """Comes last: blocks may be written with it."""

    def read_blocks(self, sequences: Sequence[int]) -> list[bytes | None]: ...

    def write_block(self, sequence: int, block: bytes) -> None: ...

    def remove_block(self, sequence: int) -> None: ...

    def wake_at(self, time: int) -> None:
        """Have this group visited once its clock reaches `time` (milliseconds)."""


def should_compact(head: Head, key_group: int) -> bool:
    """Rewrite the log once it holds clearly more rows than live keys.

    The threshold differs from group to group: all groups grow alike, and without it all of
    them would be rewritten in the same batch.
    """
    factor = 1.5 + (key_group * 7 % 16) / 16
    blocks = head.sequence - head.base
    return blocks >= 2 and head.log_rows > factor * head.live_keys + 256


def after_append(head: Head | None, *, tag: str, live_keys: int, rows: int, size: int) -> Head:
    """The head once one more block has been appended."""
    if head is None:
        return Head(0, 0, (tag,), live_keys, rows, size)
    return Head(
        head.sequence + 1,
        head.base,
        (*head.tags, tag)[-CHAIN_LENGTH:],
        live_keys,
        head.log_rows + rows,
        head.log_bytes + size,
    )


def after_compaction(head: Head | None, *, tag: str, live_keys: int, size: int) -> Head:
    """The head once the newest block holds the whole state and all others are gone."""
    sequence = 0 if head is None else head.sequence + 1
    tags = (tag,) if head is None else (*head.tags, tag)[-CHAIN_LENGTH:]
    return Head(sequence, sequence, tags, live_keys, live_keys, size)
