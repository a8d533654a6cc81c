"""The driver's memory, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.sinks.base import Delivery, Sink

_stored: dict[str, dict[int, list[tuple[Any, ...]]]] = {}


@dataclass(frozen=True)
class Memory(Sink):
    """Keep rows in the driver process under a name; read them with :func:`memory_rows`."""

    name: str
    delivery: ClassVar[Delivery] = Delivery.OBSERVER

    def describe(self) -> str:
        return f"Memory({self.name!r})"

    def store(self, epoch: int, rows: list[tuple[Any, ...]]) -> None:
        """An epoch that comes again replaces itself."""
        _stored.setdefault(self.name, {})[epoch] = rows


def memory_rows(name: str) -> list[tuple[Any, ...]]:
    """All rows of a memory sink, in the order of epochs."""
    return [row for _, rows in sorted(_stored.get(name, {}).items()) for row in rows]
