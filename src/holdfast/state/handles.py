"""What user code holds as ``self.total``: the state of the current key.

A handle looks the current key up in its key group's table on every access, so switching to
the next record costs one attribute assignment and nothing per variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.state.times import NO_TIME, EpochTime
from holdfast.state.values import Convert

if TYPE_CHECKING:
    from holdfast.state.backend import Group


class Cursor:
    """Where processing stands: the key, and the time. The base class of the user's ``ctx``."""

    __slots__ = ("event_time", "key", "late_rows", "time")

    def __init__(self) -> None:
        self.key: Any = None
        self.begin(NO_TIME)

    def begin(self, time: EpochTime) -> None:
        self.time = time
        self.late_rows = 0
        """Late records of this visit; a process that looks for them itself counts them here."""
        self.event_time: int | None = None
        """Of the current record or timer, where the step has event time."""


class Handle:
    """Base of all handles."""

    __slots__ = ("_changed", "_cursor", "_group", "_table")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def attach(self, group: Group, at: int) -> None:
        """Work on a key group, where this handle's variable is number `at`."""
        self._group, self._table, self._changed = group, group.tables[at], group.changed

    def _touch(self) -> Any:
        """Note that the current key is about to change; returns the key."""
        key = self._cursor.key
        if key not in self._changed:
            self._changed[key] = self._group.has(key)
        return key

    def clear(self) -> None:
        """Remove this variable of the current key."""
        if self._cursor.key in self._table:
            del self._table[self._touch()]

    @property
    def exists(self) -> bool:
        """Whether the current key has a value."""
        return self._cursor.key in self._table


class ValueHandle(Handle):
    """One value per key."""

    __slots__ = ("_coerce", "_copied", "_default", "_exact")

    def __init__(
        self,
        cursor: Cursor,
        *,
        default: Any,
        exact: type | None,
        coerce: Convert,
        mutable: bool,
    ) -> None:
        super().__init__(cursor)
        self._default, self._exact, self._coerce = default, exact, coerce
        self._copied = mutable

    @property
    def value(self) -> Any:
        """The value, or the declared default. Assigning None clears it."""
        value = self._table.get(self._cursor.key, self._default)
        if self._copied and value is not None:
            # A copy: changing it in place would change the state behind the log's back.
            return self._coerce(value)
        return value

    @value.setter
    def value(self, value: Any) -> None:
        if type(value) is not self._exact:
            if value is None:
                self.clear()
                return
            value = self._coerce(value)
        key = self._cursor.key
        if key not in self._changed:
            self._changed[key] = self._group.has(key)
        self._table[key] = value

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """Values of many keys of this key group at once, for ``process_batch``."""
        keys = list(keys)
        self._group.ensure(keys)
        get, default = self._table.get, self._default
        found = [get(key, default) for key in keys]
        if self._copied:
            return [None if value is None else self._coerce(value) for value in found]
        return found

    def put_many(self, keys: Iterable[Any], values: Iterable[Any]) -> None:
        """Set many keys of this key group at once, for ``process_batch``; None clears."""
        keys = list(keys)
        self._group.ensure(keys)
        changed, table, exact, has = self._changed, self._table, self._exact, self._group.has
        for key, given in zip(keys, values, strict=True):
            if key not in changed:
                changed[key] = has(key)
            if type(given) is exact:
                table[key] = given
            elif given is None:
                table.pop(key, None)
            else:
                table[key] = self._coerce(given)


class ListHandle(Handle):
    """A list per key."""

    __slots__ = ("_coerce",)

    def __init__(self, cursor: Cursor, *, coerce: Convert) -> None:
        super().__init__(cursor)
        self._coerce = coerce

    def _items(self) -> list[Any]:
        items: list[Any] = self._table.get(self._cursor.key, [])
        return items

    def add(self, item: Any) -> None:
        self.extend((item,))

    def extend(self, items: Iterable[Any]) -> None:
        exact = [self._coerce(item) for item in items]
        if exact:
            self._table.setdefault(self._touch(), []).extend(exact)

    def get(self) -> list[Any]:
        return [self._coerce(item) for item in self._items()]

    def update(self, items: Iterable[Any]) -> None:
        """Replace the whole list; an empty one clears it."""
        exact = [self._coerce(item) for item in items]
        if exact:
            self._table[self._touch()] = exact
        else:
            self.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._items())


def _as_it_is(value: Any) -> Any:
    return value


class MapHandle(Handle):
    """A map per key."""

    __slots__ = ("_coerce", "_coerce_key", "_copy")

    def __init__(
        self, cursor: Cursor, *, coerce_key: Convert, coerce: Convert, mutable: bool
    ) -> None:
        super().__init__(cursor)
        self._coerce_key, self._coerce = coerce_key, coerce
        # What cannot be changed in place need not be copied to be handed out.
        self._copy = coerce if mutable else _as_it_is

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._table.get(self._cursor.key, {})
        return entries

    def __getitem__(self, entry: Any) -> Any:
        return self._copy(self._entries()[entry])

    def get(self, entry: Any, default: Any = None) -> Any:
        found = self._entries().get(entry)
        return default if found is None else self._copy(found)

    def __setitem__(self, entry: Any, value: Any) -> None:
        entry, value = self._coerce_key(entry), self._coerce(value)
        self._table.setdefault(self._touch(), {})[entry] = value

    def update(self, entries: dict[Any, Any]) -> None:
        for entry, value in entries.items():
            self[entry] = value

    def __delitem__(self, entry: Any) -> None:
        entries = self._entries()
        if entry not in entries:
            raise KeyError(entry)
        self._touch()
        del entries[entry]
        if not entries:
            self.clear()

    def pop(self, entry: Any, default: Any = None) -> Any:
        value = self.get(entry, default)
        if entry in self._entries():
            del self[entry]
        return value

    def __contains__(self, entry: Any) -> bool:
        return entry in self._entries()

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._entries()))

    def __len__(self) -> int:
        return len(self._entries())

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return [self._copy(value) for value in self._entries().values()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(entry, self._copy(value)) for entry, value in self._entries().items()]


class ReducingHandle(ValueHandle):
    """One value per key, folded with a function."""

    __slots__ = ("_reduce",)

    def __init__(
        self, cursor: Cursor, *, reduce: Callable[[Any, Any], Any], **how: Any
    ) -> None:
        super().__init__(cursor, default=None, **how)
        self._reduce = reduce

    def add(self, item: Any) -> None:
        current = self.value
        self.value = item if current is None else self._reduce(current, item)


class AggregatingHandle(Handle):
    """An accumulator per key; what is read is its result."""

    __slots__ = ("_add", "_create", "_result", "_stored")

    def __init__(
        self,
        cursor: Cursor,
        *,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any],
        stored: ValueHandle,
    ) -> None:
        super().__init__(cursor)
        self._stored = stored
        self._create, self._add, self._result = create, add, result

    def attach(self, group: Group, at: int) -> None:
        super().attach(group, at)
        self._stored.attach(group, at)

    def clear(self) -> None:
        self._stored.clear()

    def add(self, item: Any) -> None:
        current = self._stored.value
        self._stored.value = self._add(self._create() if current is None else current, item)

    @property
    def value(self) -> Any:
        """The result so far; None for a key that has seen nothing."""
        current = self._stored.value
        return None if current is None else self._result(current)
