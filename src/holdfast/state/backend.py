"""The two ways to keep a key group's state, as the step runner sees them.

A visit of a key group begins with :meth:`Backend.begin` and ends with :meth:`Backend.end`; in
between, handles read and write the group's tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from holdfast.state.blocks import StateLayout, Table
from holdfast.state.disk import DiskGroup, DiskHead
from holdfast.state.entries import EntryStore
from holdfast.state.heap import HeapCache, KeyGroup
from holdfast.state.log import GroupStore
from holdfast.state.wheel import TimerWheel


class Queue(Protocol):
    """Which keys have something due; see :class:`holdfast.state.due.DueQueue`."""

    def note(self, time: int, key: Any) -> None: ...

    def keep(self, time: int, key: Any) -> None: ...

    def take_due(self, until: int) -> list[Any]: ...

    def next(self) -> int | None: ...


class Group(Protocol):
    """A key group during a visit."""

    changed: dict[Any, bool]

    @property
    def tables(self) -> Sequence[Table]: ...

    @property
    def queues(self) -> Sequence[Queue]: ...

    @property
    def live_keys(self) -> int: ...

    @property
    def stored_bytes(self) -> int: ...

    @property
    def wake(self) -> int | None:
        """The timer that Spark holds for this group."""

    def has(self, key: Any) -> bool: ...

    def touch(self, key: Any) -> None: ...

    def ensure(self, keys: Iterable[Any]) -> None:
        """Have the state of these keys in the tables."""


class Backend(Protocol):
    """Where the groups of one step come from."""

    reads_by_key: bool
    """Whether a key must be asked for (`Group.ensure`) before its state is there."""

    def begin(self, store: Any, number: int) -> Group: ...

    def end(self, group: Any, store: Any, wake: int | None) -> None:
        """Store what changed. Not reached if user code fails: then nothing has changed."""


class HeapBackend:
    """State in the worker's memory, logged in the state store."""

    reads_by_key = False

    def __init__(self, cache: HeapCache, layout: StateLayout, owner: Hashable) -> None:
        self._cache, self._layout, self._owner = cache, layout, owner

    def begin(self, store: GroupStore, number: int) -> KeyGroup:
        group = self._cache.take(self._owner, self._layout, number)
        group.catch_up(store)
        return group

    def end(self, group: KeyGroup, store: GroupStore, wake: int | None) -> None:
        group.flush(store, wake)
        self._cache.put(self._owner, group)


class DiskStore(Protocol):
    """One key group's part of the state store, inside one batch."""

    @property
    def entries(self) -> EntryStore: ...

    def read_head(self) -> DiskHead | None: ...

    def write_head(self, head: DiskHead) -> None: ...

    def wake_at(self, time: int) -> None: ...


class RocksBackend:
    """State in the state store, of which a visit reads what it needs."""

    reads_by_key = True

    def __init__(self, layout: StateLayout, paged: frozenset[str]) -> None:
        self._layout, self._paged = layout, paged
        self._wheel = TimerWheel(
            layout.key_kinds, {each.name: each.older_names for each in layout.variables}
        )
        self._has_times = any(variable.clock is not None for variable in layout.variables)

    def begin(self, store: DiskStore, number: int) -> DiskGroup:
        group = DiskGroup(self._layout, number, paged=self._paged)
        group.begin(store.entries, store.read_head())
        if self._has_times:
            self._wheel.begin(store.entries)
        group.queues = [
            WheelQueue(self._wheel, variable.name) for variable in self._layout.variables
        ]
        return group

    def end(self, group: DiskGroup, store: DiskStore, wake: int | None) -> None:
        before = group.head
        group.flush(store.entries)
        if self._has_times:
            self._wheel.flush(store.entries)
        head = replace(group.head, wake=wake)
        if head != before:
            store.write_head(head)
        if wake is not None and wake != before.wake:
            store.wake_at(wake)


class WheelQueue:
    """The times of one variable in a key group's wheel."""

    def __init__(self, wheel: TimerWheel, kind: str) -> None:
        self._wheel, self._kind = wheel, kind

    def note(self, time: int, key: Any) -> None:
        self._wheel.register(self._kind, time, key)

    def keep(self, time: int, key: Any) -> None:
        """Every time that was noted is still in the wheel, not just a key's earliest."""

    def take_due(self, until: int) -> list[Any]:
        return list(dict.fromkeys(key for _, key in self._wheel.due(self._kind, until)))

    def next(self) -> int | None:
        return self._wheel.next(self._kind)
