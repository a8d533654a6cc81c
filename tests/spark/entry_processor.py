"""A stateful processor that reads and writes one MapState in both ways, and compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from holdfast.engine.entries import (
    KEY_DDL,
    VALUE_DDL,
    PipelinedEntries,
    PublicEntries,
    entries_for,
)
from holdfast.state.entries import EntryStore

OUTPUT_DDL = "kg int, round int, entries bigint, store string, error string"
KEYS = [b"key %d" % at for at in range(500)] + [b"", b"\x00\xff", b"\xe9" * 300]


def entries_after(group: int, rounds: int) -> dict[bytes, bytes]:
    """What a key group must hold after some rounds: entries come, change and go."""
    entries = {}
    for at, key in enumerate(KEYS):
        if (at + rounds) % 3 and rounds:
            entries[key] = bytes([group, rounds, at % 256]) * (at % 40)
    if rounds % 2:
        entries[b"large"] = bytes(range(256)) * 2000  # larger than all buffers on the way
        entries[b"empty"] = b""
    return entries


class ComparingProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("entries", KEY_DDL, VALUE_DDL)

    def handleInputRows(  # type: ignore[override]
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        (group,) = key
        (number,) = (row.round for row in rows)
        pipelined: EntryStore = PipelinedEntries(self._state)
        public: EntryStore = PublicEntries(self._state)
        before, after = entries_after(group, number - 1), entries_after(group, number)
        asked = [*KEYS, b"large", b"empty"]
        for store in (pipelined, public):
            assert store.get_many(asked) == [before.get(key) for key in asked], store

        gone, there = [key for key in before if key not in after], list(after.items())
        for at, store in enumerate((pipelined, public)):
            store.remove_many(gone[at::2])
            store.put_many(there[at::2])

        for store in (public, pipelined):
            assert store.get_many(asked) == [after.get(key) for key in asked], store
        chosen = type(entries_for(self._state)).__name__
        yield Row(kg=group, round=number, entries=len(after), store=chosen, error=self._error())

    def _error(self) -> str:
        """What a request for a state that does not exist is answered with."""
        unknown = MapState(self._state._mapStateClient, "unknown")
        try:
            PipelinedEntries(unknown).get_many([b"key"])
        except PySparkRuntimeError as error:
            return str(error)
        return ""
