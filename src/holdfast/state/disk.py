"""The rocksdb backend: a key group whose state stays in the state store.

A visit of a batch begins with :meth:`DiskGroup.begin`, which reads the batch's keys in one go.
User code then works on the tables, as it does with the heap backend. :meth:`DiskGroup.flush`
writes what has changed and forgets everything, so a worker's memory is bounded by what one
batch touches of one key group. Nothing outlives the visit, so nothing can be stale: a task
that fails leaves its group to be begun anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.state.blocks import StateLayout, StateVariable, Table
from holdfast.state.codec import decoder, encoder
from holdfast.state.entries import EntryStore, Writes, value_prefix
from holdfast.state.key_groups import canonical_bytes
from holdfast.state.pages import LazyList, LazyMap, PagedValue, paged_variable


@dataclass(frozen=True)
class DiskHead:
    """What is known about a key group without reading it."""

    live_keys: int = 0
    stored_bytes: int = 0
    """Entries of all its keys, without what Spark adds to each."""
    wake: int | None = None
    """When Spark's timer of the key group fires, in milliseconds."""


class DiskGroup:
    """The state of one key group, as far as the batch has touched it."""

    def __init__(
        self, layout: StateLayout, number: int, *, paged: frozenset[str] = frozenset()
    ) -> None:
        """`paged` names the variables that are maps or lists of unknown size."""
        self.layout, self.number = layout, number
        self._columns: list[_Column] = [
            (_PagedColumn if variable.name in paged else _PlainColumn)(variable)
            for variable in layout.variables
        ]
        self.tables: list[Table] = [column.table for column in self._columns]
        """One per variable. They stay the same objects; only their contents change."""
        self.changed: dict[Any, bool] = {}
        """Keys written in this visit, and whether they existed before it."""
        self.head = DiskHead()
        self._key_bytes: dict[Any, bytes] = {}
        """Canonical bytes of the keys that have been read."""
        self._store: EntryStore | None = None
        self.queues: Sequence[Any] = ()
        """Beside each table: which of its keys have something due."""

    @property
    def wake(self) -> int | None:
        return self.head.wake

    def touch(self, key: Any) -> None:
        """Note that a key is about to change."""
        if key not in self.changed:
            self.changed[key] = self.has(key)

    @property
    def live_keys(self) -> int:
        return self.head.live_keys

    @property
    def stored_bytes(self) -> int:
        return self.head.stored_bytes

    def begin(self, store: EntryStore, head: DiskHead | None, keys: Iterable[Any] = ()) -> None:
        """Begin a visit, with the keys that it will surely need. Forgets an unfinished one."""
        self._forget()
        self._store, self.head = store, head or DiskHead()
        self.ensure(keys)

    def ensure(self, keys: Iterable[Any]) -> None:
        """Have these keys in the tables, with one call of the store for all that are not."""
        fresh = [key for key in dict.fromkeys(keys) if key not in self._key_bytes]
        if fresh:
            store = self._read(fresh)
            for column in self._columns:
                column.decode(store, fresh, self._key_bytes)

    def has(self, key: Any) -> bool:
        if key not in self._key_bytes:
            self.ensure((key,))
        for table in self.tables:  # noqa: SIM110 - half the time of any(), and it is called often
            if key in table:
                return True
        return False

    def flush(self, store: EntryStore) -> bool:
        """Write what changed and end the visit; was there anything to write?

        Then :attr:`head` is another one, and the caller must store it. If a value cannot be
        encoded, nothing has been written, and tables and `changed` are as they were.
        """
        # Code that wrote a key without asking for it first must not leave its old pages behind.
        unread = [key for key in self.changed if key not in self._key_bytes]
        if unread:
            self._read(unread)
        writes, live, growth = Writes(), 0, 0
        for key in self.changed:
            key_bytes = self._key_bytes[key]
            existed = exists = False
            for column in self._columns:
                existed |= key in column.stored
                kept, grown = column.write(key, key_bytes, store, writes)
                exists |= kept
                growth += grown
            live += exists - existed
        written = writes.apply(store)
        self.head = replace(
            self.head,
            live_keys=self.head.live_keys + live,
            stored_bytes=self.head.stored_bytes + growth,
        )
        self._forget()
        return written

    def _read(self, keys: Sequence[Any]) -> EntryStore:
        """Fetch what is stored of keys that were not read yet."""
        assert self._store is not None, "begin() comes first"
        for key in keys:
            self._key_bytes[key] = canonical_bytes(key)
        key_bytes = [self._key_bytes[key] for key in keys]
        prefixes = [prefix for column in self._columns for prefix in column.prefixes]
        found = self._store.get_many([prefix + key for prefix in prefixes for key in key_bytes])
        answers = (found[at : at + len(keys)] for at in range(0, len(found), len(keys)))
        for column in self._columns:
            for name in column.names:
                column.take(name, keys, next(answers))
        return self._store

    def _forget(self) -> None:
        for column in self._columns:
            column.forget()
        self.changed.clear()
        self._key_bytes.clear()
        self._store = None


class _Column:
    """One variable: what user code sees of it, and what is stored."""

    def __init__(self, variable: StateVariable) -> None:
        self.names = (variable.name, *variable.older_names)
        self.prefixes = [value_prefix(name) for name in self.names]
        self.table: Table = {}
        self.stored: dict[Any, bytes] = {}
        """Entries as they were read, by key."""
        self.moved: dict[Any, str] = {}
        """By key: the older name under which its entry was found."""

    def take(self, name: str, keys: Sequence[Any], found: Sequence[bytes | None]) -> None:
        """Note what was found under a name; names come newest first, and the first one wins."""
        for key, entry in zip(keys, found, strict=True):
            if entry is not None and key not in self.stored:
                self.stored[key] = entry
                if name != self.names[0]:
                    self.moved[key] = name

    def forget(self) -> None:
        self.table.clear()
        self.stored.clear()
        self.moved.clear()

    def decode(
        self, store: EntryStore, keys: Sequence[Any], key_bytes: dict[Any, bytes]
    ) -> None:
        """Fill the table for keys that have just been read."""
        raise NotImplementedError

    def write(
        self, key: Any, key_bytes: bytes, store: EntryStore, writes: Writes
    ) -> tuple[bool, int]:
        """Whether the key has a value now, and by how many bytes it has grown."""
        raise NotImplementedError

    def _write_entry(
        self, key: Any, key_bytes: bytes, new: bytes | None, writes: Writes
    ) -> int:
        """Store the entry if it is another one; returns by how many bytes it has grown."""
        old, place = self.stored.get(key), self.prefixes[0] + key_bytes
        if new == old and key not in self.moved:
            return 0
        growth = 0
        if old is not None:
            name = self.moved.get(key, self.names[0])
            old_place = value_prefix(name) + key_bytes
            writes.remove(old_place)
            growth -= len(old_place) + len(old)
        if new is not None:
            writes.put(place, new)
            growth += len(place) + len(new)
        return growth


class _PlainColumn(_Column):
    """Values that are read and written whole."""

    def __init__(self, variable: StateVariable) -> None:
        super().__init__(variable)
        self._encode, self._decode = encoder(variable.kind), decoder(variable.kind)

    def decode(
        self, store: EntryStore, keys: Sequence[Any], key_bytes: dict[Any, bytes]
    ) -> None:
        stored, table, decode = self.stored, self.table, self._decode
        for key in keys:
            if key in stored:
                table[key] = decode(stored[key])

    def write(
        self, key: Any, key_bytes: bytes, store: EntryStore, writes: Writes
    ) -> tuple[bool, int]:
        value = self.table.get(key)
        new = None if value is None else self._encode(value)
        return new is not None, self._write_entry(key, key_bytes, new, writes)


class _PagedColumn(_Column):
    """Maps and lists of which only a part is read and written."""

    def __init__(self, variable: StateVariable) -> None:
        super().__init__(variable)
        self._variable = paged_variable(variable.name, variable.kind)

    def decode(
        self, store: EntryStore, keys: Sequence[Any], key_bytes: dict[Any, bytes]
    ) -> None:
        for key in keys:
            if key in self.stored:
                self.table[key] = self._open(key, key_bytes[key], store)

    def write(
        self, key: Any, key_bytes: bytes, store: EntryStore, writes: Writes
    ) -> tuple[bool, int]:
        value = self.table.get(key)
        if value is None and key not in self.stored:
            return False, 0
        if not isinstance(value, PagedValue):
            # A new key, one whose value user code has replaced, or one that was cleared.
            content, value = value, self._open(key, key_bytes, store)
            if content is None:
                value.clear()
            else:
                value.replace(content)
        head, growth = value.flush(writes)
        return head is not None, growth + self._write_entry(key, key_bytes, head, writes)

    def _open(self, key: Any, key_bytes: bytes, store: EntryStore) -> LazyMap | LazyList:
        found_under = self.moved.get(key, self.names[0])
        return self._variable.open(store, key_bytes, self.stored.get(key), found_under)
