"""The heap backend: key groups decoded in a worker's memory, logged in the state store.

One :class:`HeapCache` lives as long as its Python worker. A key group is *taken out* of it
while user code runs and *put back* only after its head has been written, so a task that
fails half-way leaves nothing stale behind.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import CorruptionError
from holdfast.state.blocks import StateLayout, Table, apply_block, encode_block
from holdfast.state.due import DueQueue
from holdfast.state.log import (
    GroupStore,
    Head,
    after_append,
    after_compaction,
    should_compact,
)
from holdfast.state.ttl import earliest

ROW_OVERHEAD = 160
"""Bytes that a key costs in Python on top of its encoded form (measured: dict slot, key
object, value object)."""


@dataclass(eq=False)
class KeyGroup:
    """The decoded state of one key group, at one point of its log."""

    layout: StateLayout
    number: int
    tables: list[Table]
    head: Head | None = None
    tag: str = ""
    changed: dict[Any, bool] = field(default_factory=dict)
    """Keys written in this batch, and whether they existed before it."""
    queues: list[DueQueue] = field(init=False)
    """Beside each table; filled for variables that hold times."""

    def __post_init__(self) -> None:
        self.queues = [DueQueue() for _ in self.layout.variables]

    @classmethod
    def empty(cls, layout: StateLayout, number: int) -> KeyGroup:
        return cls(layout, number, [{} for _ in layout.variables])

    def touch(self, key: Any) -> None:
        """Note that a key is about to change."""
        if key not in self.changed:
            self.changed[key] = self.has(key)

    def has(self, key: Any) -> bool:
        for table in self.tables:  # noqa: SIM110 - half the time of any(), and it is called often
            if key in table:
                return True
        return False

    @property
    def live_keys(self) -> int:
        return self.head.live_keys if self.head else 0

    @property
    def stored_bytes(self) -> int:
        return self.head.log_bytes if self.head else 0

    @property
    def wake(self) -> int | None:
        return self.head.wake if self.head else None

    def ensure(self, keys: Iterable[Any]) -> None:
        """All keys are here."""

    @property
    def memory(self) -> int:
        """An estimate of what this group costs the worker, from what was last stored."""
        if self.head is None or self.head.log_rows == 0:
            return 0
        per_row = self.head.log_bytes / self.head.log_rows
        return int(self.head.live_keys * (per_row + ROW_OVERHEAD * len(self.tables)))

    def catch_up(self, store: GroupStore) -> int:
        """Bring the tables to the store's head; returns how many blocks had to be read."""
        # Another worker had the group last time as often as not: it wrote the next block.
        head = store.read_head(likely=self.head.sequence + 1 if self.head else 0)
        if head is None:
            self._reset(None)
            return 0
        missed = head.missed_since(self.head.sequence, self.tag) if self.head else None
        if missed is None:
            self._reset(head)
            missed = head.all_blocks()
        blocks = store.read_blocks(missed) if missed else []
        for sequence, block in zip(missed, blocks, strict=True):
            if block is None:
                raise CorruptionError(
                    "STATE_BLOCK_MISSING",
                    f"key group {self.number}: block {sequence} of {head.base}-"
                    f"{head.sequence} is not in the state store.",
                    fix="restore the checkpoint directory from a backup; this one is damaged.",
                )
            self._note_times(apply_block(self.layout, block, self.tables))
        self.head, self.tag = head, head.tags[-1]
        return len(missed)

    def _note_times(self, keys: Iterable[Any]) -> None:
        for variable, table, queue in zip(
            self.layout.variables, self.tables, self.queues, strict=True
        ):
            if variable.clock is not None:
                for key in keys:
                    times = table.get(key)
                    if times is not None:
                        queue.note(earliest(times), key)

    def _reset(self, head: Head | None) -> None:
        self.tables = [{} for _ in self.layout.variables]
        self.queues = [DueQueue() for _ in self.layout.variables]
        self.head, self.tag = head, ""
        self.changed = {}

    def flush(self, store: GroupStore, wake: int | None = None) -> bool:
        """Write what changed, and the head; returns whether the log was compacted.

        `wake` is when Spark is to look at this group again even without records.
        """
        before, compact = self.head, False
        keys, live = self._keys_to_write()
        if keys:
            compact = self._append(store, keys, live)
        self.changed = {}
        if not keys and (before is None or before.wake == wake):
            return False
        assert self.head is not None
        self.head = replace(self.head, wake=wake)
        store.write_head(self.head)
        if wake is not None and (before is None or before.wake != wake):
            store.wake_at(wake)
        return compact

    def _keys_to_write(self) -> tuple[list[Any], int]:
        """The keys that differ from what is stored, and how many keys live afterwards."""
        keys, live, has = [], self.live_keys, self.has
        for key, existed in self.changed.items():
            exists = has(key)
            if exists or existed:
                keys.append(key)
            live += exists - existed
        return keys, live

    def _append(self, store: GroupStore, keys: list[Any], live: int) -> bool:
        tag = secrets.token_hex(6)
        block = encode_block(self.layout, keys, self.tables)
        head = after_append(self.head, tag=tag, live_keys=live, rows=len(keys), size=len(block))
        compact = should_compact(head, self.number)
        if compact:
            block = encode_block(self.layout, self.all_keys(), self.tables)
            for sequence in head.all_blocks()[:-1]:
                store.remove_block(sequence)
            head = after_compaction(self.head, tag=tag, live_keys=live, size=len(block))
        store.write_block(head.sequence, block)
        self.head, self.tag = head, tag
        return compact

    def all_keys(self) -> list[Any]:
        if len(self.tables) == 1:
            return list(self.tables[0])
        return list(dict.fromkeys(key for table in self.tables for key in table))


class HeapCache:
    """Key groups of one worker process, least recently used first, within a memory bound."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._groups: OrderedDict[Hashable, KeyGroup] = OrderedDict()
        self._used = 0

    def take(self, owner: Hashable, layout: StateLayout, number: int) -> KeyGroup:
        """Remove and return a key group; a fresh one if it is not here or was laid out
        otherwise (the code changed)."""
        group = self._groups.pop((owner, number), None)
        if group is not None:
            self._used -= group.memory
            if group.layout == layout:
                return group
        return KeyGroup.empty(layout, number)

    def put(self, owner: Hashable, group: KeyGroup) -> None:
        self._groups[owner, group.number] = group
        self._used += group.memory
        while self._used > self.limit and len(self._groups) > 1:
            _, oldest = self._groups.popitem(last=False)
            self._used -= oldest.memory

    @property
    def used(self) -> int:
        return self._used

    def __len__(self) -> int:
        return len(self._groups)
