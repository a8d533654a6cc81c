"""Records as user code sees them: attributes backed by Arrow columns, decoded on first use.

A job often reads two of twenty columns; the other eighteen are never turned into Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from holdfast.state.values import decode


class Columns:
    """The columns of one block. `columns.user` is a list, decoded when first asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> list[Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        values = decode(self._batch.column(name))
        self.__dict__[name] = values
        return values


class Record:
    """One input record: `record.user`, `record["user"]`, `record.as_dict()`."""

    __slots__ = ("_columns", "_row")
    _names: tuple[str, ...] = ()

    def __init__(self, columns: Columns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return getattr(self._columns, name)[self._row]

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self._names)

    def as_dict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._names}

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that are no column, or no identifier.
        raise AttributeError(
            f"the record has no column {name!r}; it has {', '.join(self._names)}",
            name=name,
            obj=self,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={self[name]!r}' for name in self._names)})"


@cache
def record_class(names: tuple[str, ...]) -> type[Record]:
    """A Record class with one property per column."""

    def column_property(name: str) -> property:
        return property(lambda record: getattr(record._columns, name)[record._row])

    members: dict[str, Any] = {"__slots__": (), "_names": names}
    members |= {name: column_property(name) for name in names if name.isidentifier()}
    return type("Record", (Record,), members)
