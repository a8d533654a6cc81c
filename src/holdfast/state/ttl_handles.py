"""Handles of state with a TTL: they note when what they write expires.

They never look at the clock to read: what has expired is gone before user code runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.state.handles import (
    Handle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    ValueHandle,
)
from holdfast.state.ttl import Lifetime

if TYPE_CHECKING:
    from holdfast.state.backend import Group


class _WithTtl(Handle):
    """The expiries lie beside the values, in the variable after theirs."""

    life: Lifetime

    def attach(self, group: Group, at: int) -> None:
        super().attach(group, at)
        self._expiries, self._due = group.tables[at + 1], group.queues[at + 1]

    def clear(self) -> None:
        super().clear()
        self._expiries.pop(self._cursor.key, None)

    def _note(self, expiry: int, key: Any, *, first: bool) -> None:
        """Have a key looked at when one of several expiries comes; the first one is noted
        anyway, and later ones are later where the clock only goes forward."""
        if first or not self.life.forward:
            self._due.note(expiry, key)


class TtlValueHandle(_WithTtl, ValueHandle):
    """One value per key, for a while."""

    @property
    def value(self) -> Any:
        found = ValueHandle.value.__get__(self)
        if self.life.on_read and self._cursor.key in self._table:
            self._renew(self._touch())
        return found

    @value.setter
    def value(self, value: Any) -> None:
        ValueHandle.value.__set__(self, value)  # type: ignore[attr-defined]
        if value is not None:
            self._renew(self._cursor.key)

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        keys = list(keys)
        self._group.ensure(keys)
        if self.life.on_read:
            for key in keys:
                if key in self._table:
                    self._group.touch(key)
                    self._renew(key)
        return super().get_many(keys)

    def put_many(self, keys: Iterable[Any], values: Iterable[Any]) -> None:
        keys = list(keys)
        super().put_many(keys, values)
        for key in keys:
            if key in self._table:
                self._renew(key)
            else:
                self._expiries.pop(key, None)

    def _renew(self, key: Any) -> None:
        before, expiry = self._expiries.get(key), self.life.expiry()
        self._expiries[key] = expiry
        if before is None or expiry < before:
            # Otherwise the key is looked at when the earlier time has come, and put off.
            self._due.note(expiry, key)


class TtlReducingHandle(TtlValueHandle, ReducingHandle):
    """One folded value per key, for a while."""


class TtlListHandle(_WithTtl, ListHandle):
    """A list per key; each element has its own time."""

    def extend(self, items: Iterable[Any]) -> None:
        super().extend(items)
        self._stamp()

    def update(self, items: Iterable[Any]) -> None:
        super().update(items)
        self._expiries.pop(self._cursor.key, None)
        self._stamp()

    def get(self) -> list[Any]:
        if self.life.on_read and len(self):
            self._expiries.pop(self._touch(), None)
            self._stamp()
        return super().get()

    def _stamp(self) -> None:
        """Give a time to the elements that have none: new ones, and those that were there
        before the state had a TTL."""
        key = self._cursor.key
        missing = len(self) - len(self._expiries.get(key, ()))
        if missing:
            expiry = self.life.expiry()
            expiries = self._expiries.get(key)
            if expiries is None:
                expiries = self._expiries[key] = []
            self._note(expiry, key, first=not expiries)
            expiries.extend([expiry] * missing)


class TtlMapHandle(_WithTtl, MapHandle):
    """A map per key; each entry has its own time."""

    def __setitem__(self, entry: Any, value: Any) -> None:
        super().__setitem__(entry, value)
        self._stamp(self._coerce_key(entry))

    def __delitem__(self, entry: Any) -> None:
        super().__delitem__(entry)
        expiries = self._expiries.get(self._cursor.key)
        if expiries is not None:  # the last entry took all of them along
            del expiries[entry]

    def __getitem__(self, entry: Any) -> Any:
        self._read(entry)
        return super().__getitem__(entry)

    def get(self, entry: Any, default: Any = None) -> Any:
        self._read(entry)
        return super().get(entry, default)

    def values(self) -> list[Any]:
        self._read(*self._entries())
        return super().values()

    def items(self) -> list[tuple[Any, Any]]:
        self._read(*self._entries())
        return super().items()

    def _read(self, *entries: Any) -> None:
        if self.life.on_read:
            for entry in entries:
                if entry in self:
                    self._touch()
                    self._stamp(entry)

    def _stamp(self, entry: Any) -> None:
        key, expiry = self._cursor.key, self.life.expiry()
        expiries = self._expiries.get(key)
        if expiries is None:
            expiries = self._expiries[key] = {}
        self._note(expiry, key, first=not expiries)
        expiries[entry] = expiry
