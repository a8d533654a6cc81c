"""Records as user code sees them: attributes backed by Arrow columns.

A job often reads two of twenty columns; the other eighteen are never turned into Python. The
columns that a step has read are remembered, and put into the records of the next blocks up
front: reading them is then as cheap as reading a named tuple. A column that was never read
before is decoded when it is first asked for.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from keyword import iskeyword
from typing import Any

import pyarrow as pa

from holdfast.state.values import decode


class Columns:
    """The columns of one block, as lists, decoded when first asked for."""

    def __init__(self, batch: pa.RecordBatch, decoded: Mapping[str, list[Any]]) -> None:
        self._batch, self._decoded = batch, dict(decoded)

    def __getitem__(self, name: str) -> list[Any]:
        values = self._decoded.get(name)
        if values is None:
            values = self._decoded[name] = decode(self._batch.column(name))
        return values


class Record(tuple[Any, ...]):
    """One input record: `record.user`, `record["user"]`, `record.as_dict()`."""

    # The tuple holds the columns that are read often, then the block's Columns and the row.
    __slots__ = ()
    _names: tuple[str, ...] = ()

    def __getitem__(self, name: Any) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return tuple.__getitem__(self, -2)[name][tuple.__getitem__(self, -1)]

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self._names)

    def __len__(self) -> int:
        return len(self._names)

    def as_dict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._names}

    def __getattr__(self, name: str) -> Any:
        # Reached for names that are no column, and for columns that cannot be properties.
        if name in self._names:
            return self[name]
        raise AttributeError(
            f"the record has no column {name!r}; it has {', '.join(self._names)}",
            name=name,
            obj=self,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.as_dict() == other.as_dict()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(iter(self)))

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={self[name]!r}' for name in self._names)})"


class RecordMaker:
    """Makes the records of a step, block by block."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._often: dict[str, None] = {}
        """The columns that user code has read, in the order in which it first did."""
        self._classes: dict[tuple[str, ...], type[Record]] = {}

    def records(
        self, batch: pa.RecordBatch, decoded: Mapping[str, list[Any]]
    ) -> Iterator[Record]:
        """One record per row. `decoded` are columns that are known already."""
        often = tuple(self._often)
        if often not in self._classes:
            self._classes[often] = _record_class(self._names, often, self._note)
        columns = Columns(batch, decoded)
        ready = (columns[name] for name in often)
        rows = zip(*ready, repeat(columns), range(batch.num_rows), strict=False)
        # `tuple.__new__` itself: all that is done per record is done in C.
        return map(partial(tuple.__new__, self._classes[often]), rows)

    def kept(self, rows: Sequence[tuple[Any, ...]]) -> list[Record]:
        """Records that were kept in state as rows of all columns."""
        if () not in self._classes:
            self._classes[()] = _record_class(self._names, (), self._note)
        columns = dict(zip(self._names, zip(*rows, strict=True), strict=False))
        return [tuple.__new__(self._classes[()], (columns, at)) for at in range(len(rows))]

    def _note(self, name: str) -> None:
        self._often[name] = None


def _record_class(
    names: tuple[str, ...], often: tuple[str, ...], note: Callable[[str], None]
) -> type[Record]:
    """A Record class with one attribute per column."""

    def seldom(name: str) -> property:
        def read(record: Record) -> Any:
            note(name)
            return record[name]

        return property(read)

    # A named tuple's fields are the quickest way into a tuple that Python has.
    fields = namedtuple("fields", [f"f{at}" for at in range(len(often))])  # type: ignore[misc]
    members: dict[str, Any] = {"__slots__": (), "_names": names}
    members |= {name: seldom(name) for name in names if _is_attribute(name)}
    members |= {name: vars(fields)[f"f{at}"] for at, name in enumerate(often)}
    return type("Record", (Record,), members)


def _is_attribute(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")
