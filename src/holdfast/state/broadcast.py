"""Broadcast state: few rows of a second stream that every key group knows.

Each key group keeps a copy of its own, committed with the epoch like all its state. So a
repeated epoch sees the rules that it saw first, and a key group takes them along wherever it
goes. In an epoch, broadcast rows come before timers and records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import CorruptionError, JobDefinitionError
from holdfast.state.values import coercion, decode, encode, is_mutable

if TYPE_CHECKING:
    from holdfast.state.declare import BroadcastState

_FORMAT_FIELD, _FORMAT = b"holdfast.broadcast", b"1"


class BroadcastHandle(MutableMapping[Any, Any]):
    """What user code holds as ``self.rules``: a map that only ``on_broadcast`` changes."""

    def __init__(self, state: BroadcastState) -> None:
        self.state = state
        self._coerce_key, self._coerce = coercion(state.entry), coercion(state.item)
        self._copied = is_mutable(state.item)
        self.values_by_key: dict[Any, Any] = {}
        self.writable = False

    def __getitem__(self, entry: Any) -> Any:
        found = self.values_by_key[entry]
        # A copy: changing it in place would change it for other keys, and for no other worker.
        return self._coerce(found) if self._copied and found is not None else found

    def __setitem__(self, entry: Any, value: Any) -> None:
        self._check_writable()
        self.values_by_key[self._coerce_key(entry)] = self._coerce(value)

    def __delitem__(self, entry: Any) -> None:
        self._check_writable()
        del self.values_by_key[entry]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values_by_key)

    def __len__(self) -> int:
        return len(self.values_by_key)

    def _check_writable(self) -> None:
        if not self.writable:
            raise JobDefinitionError(
                "BROADCAST_READ_ONLY",
                f"broadcast state {self.state.name!r} was changed while a record or timer was "
                "processed; it would differ between key groups.",
                fix="change it in on_broadcast(self, row, ctx) only.",
            )


class Broadcasts:
    """The broadcast state of a step, of the key group that is being visited."""

    def __init__(self, states: Sequence[BroadcastState]) -> None:
        self.handles = [BroadcastHandle(state) for state in states]
        self._loaded: bytes | None = None
        """What the handles hold: key groups mostly have the same."""

    def load(self, stored: bytes | None) -> None:
        if stored == self._loaded:
            return
        columns = {} if stored is None else _columns(stored)
        for handle in self.handles:
            column = columns.get(handle.state.name)
            if column is not None and column.type != handle.state.stored:
                column = column.cast(handle.state.stored)
            [found] = [None] if column is None else decode(column)
            handle.values_by_key = found or {}
        self._loaded = stored

    def change(self, apply: Callable[[], None]) -> bytes:
        """Let `apply` change the state; returns what is to be stored."""
        self._loaded = None  # a failure half-way must not be taken for what is stored
        for handle in self.handles:
            handle.writable = True
        try:
            apply()
        finally:
            for handle in self.handles:
                handle.writable = False
        self._loaded = self._dump()
        return self._loaded

    def _dump(self) -> bytes:
        schema = pa.schema(
            [(handle.state.name, handle.state.stored) for handle in self.handles],
            metadata={_FORMAT_FIELD: _FORMAT},
        )
        batch = pa.RecordBatch.from_arrays(
            [encode([handle.values_by_key], handle.state.stored) for handle in self.handles],
            schema=schema,
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())


def _columns(stored: bytes) -> dict[str, pa.Array]:
    try:
        with pa.ipc.open_stream(stored) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowInvalid, StopIteration, OSError) as error:
        raise CorruptionError(
            "STATE_BLOCK_UNREADABLE",
            f"the broadcast state ({len(stored)} bytes) is not an Arrow stream: {error}.",
            fix="restore the checkpoint directory from a backup; the bytes were damaged.",
        ) from error
    version = (batch.schema.metadata or {}).get(_FORMAT_FIELD)
    if version != _FORMAT:
        raise CorruptionError(
            "STATE_FORMAT_UNKNOWN",
            f"the broadcast state has format {version!r}; this version reads {_FORMAT!r}.",
            fix="run the holdfast version that wrote the state, or a newer one.",
        )
    return dict(zip(batch.schema.names, batch.columns, strict=True))
