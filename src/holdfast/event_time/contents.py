"""What is kept of a window until it is over: one accumulator, or its records.

Contents lie under the window's *home*, a number that stays the same while a session grows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windows import Window
from holdfast.state.declare import MapState, State
from holdfast.state.handles import MapHandle
from holdfast.state.process import Context, KeyedProcess
from holdfast.state.records import RecordMaker
from holdfast.state.schema import parse_type, type_ddl
from holdfast.state.values import coercion


class Contents(ABC):
    """The contents of all windows of the current key."""

    @abstractmethod
    def states(self) -> dict[str, State]:
        """What is declared for them, by name."""

    @abstractmethod
    def open(self, step: KeyedProcess) -> None:
        """Take the handles of that state from the step, which runs now."""

    @abstractmethod
    def has(self, home: int) -> bool: ...

    @abstractmethod
    def add(self, home: int, record: Any) -> bool:
        """Take in a record; was it the first one?"""

    @abstractmethod
    def merge(self, homes: list[int]) -> int:
        """Put the contents of several homes into one of them, and say which."""

    @abstractmethod
    def rows(self, home: int, window: Window, ctx: Context) -> Iterable[Any]:
        """The result of a window."""

    @abstractmethod
    def remove(self, home: int) -> None: ...


class Accumulated(Contents):
    """One accumulator per window."""

    def __init__(self, process: WindowProcess) -> None:
        assert process.accumulator is not None
        self._process = process
        self._exact = coercion(parse_type(process.accumulator, "accumulator type"))

    def states(self) -> dict[str, State]:
        assert self._process.accumulator is not None
        return {"accumulators": MapState("bigint", self._process.accumulator)}

    def open(self, step: KeyedProcess) -> None:
        self._accumulators: MapHandle = step.__dict__["accumulators"]

    def has(self, home: int) -> bool:
        return home in self._accumulators

    def add(self, home: int, record: Any) -> bool:
        known = self._accumulators.get(home)
        # An empty one is brought into its stored form, so that `add` always gets the same kind.
        before = self._exact(self._process.create()) if known is None else known
        self._put(home, self._process.add(before, record), "add")
        return known is None

    def merge(self, homes: list[int]) -> int:
        first, *others = homes
        for other in others:
            into, merged = self._accumulators[first], self._accumulators.pop(other)
            self._put(first, self._process.merge(into, merged), "merge")
        return first

    def rows(self, home: int, window: Window, ctx: Context) -> Iterable[Any]:
        return self._process.result(window, self._accumulators[home], ctx) or ()

    def remove(self, home: int) -> None:
        self._accumulators.pop(home)

    def _put(self, home: int, accumulator: Any, function: str) -> None:
        if accumulator is None:
            name = type(self._process).__name__
            raise TypeError(f"{name}.{function} returned None, not the new accumulator")
        self._accumulators[home] = accumulator


class Recorded(Contents):
    """All records of a window, numbered.

    A record is an entry of its own, so taking one in does not touch the others.
    """

    def __init__(self, process: WindowProcess, kept: pa.Schema) -> None:
        self._process, self._kept = process, kept
        self._names = tuple(kept.names)
        self._make = RecordMaker(self._names)

    def states(self) -> dict[str, State]:
        return {
            "counts": MapState("bigint", "bigint"),
            "records": MapState("home bigint, n bigint", type_ddl(pa.struct(list(self._kept)))),
        }

    def open(self, step: KeyedProcess) -> None:
        self._counts: MapHandle = step.__dict__["counts"]
        self._records: MapHandle = step.__dict__["records"]

    def has(self, home: int) -> bool:
        return home in self._counts

    def add(self, home: int, record: Any) -> bool:
        number = self._counts.get(home, 0)
        self._records[home, number] = tuple(record[name] for name in self._names)
        self._counts[home] = number + 1
        return bool(number == 0)

    def merge(self, homes: list[int]) -> int:
        largest = max(homes, key=self._counts.get)
        count = self._counts[largest]
        for home in homes:
            if home != largest:
                for number in range(self._counts.pop(home)):
                    self._records[largest, count] = self._records.pop((home, number))
                    count += 1
        self._counts[largest] = count
        return largest

    def rows(self, home: int, window: Window, ctx: Context) -> Iterable[Any]:
        rows = [self._records[home, number] for number in range(self._counts[home])]
        return self._process.process(window, self._make.kept(rows), ctx) or ()

    def remove(self, home: int) -> None:
        for number in range(self._counts.pop(home)):
            del self._records[home, number]
