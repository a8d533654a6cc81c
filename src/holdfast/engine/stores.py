"""A key group's part of Spark's state store. Spark knows the current group."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from holdfast.engine.entries import KEY_DDL, VALUE_DDL, entries_for
from holdfast.errors import CorruptionError
from holdfast.state.disk import DiskHead
from holdfast.state.entries import BROADCAST
from holdfast.state.log import Head

_LOG_HEAD_DDL = (
    "format int, sequence bigint, base bigint, tags string, live_keys bigint, "
    "log_rows bigint, log_bytes bigint, wake bigint"
)
_LOG_HEAD_FORMAT = 1
_BROADCAST_BLOCK = -1
_ENTRIES_HEAD_DDL = "format int, live_keys bigint, stored_bytes bigint, wake bigint"


class SparkLogStore:
    """For the heap backend: a log of blocks."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self.wake_at = handle.registerTimer
        self._head = handle.getValueState("head", _LOG_HEAD_DDL)
        self._log = handle.getMapState("log", "sequence bigint", "block binary")

    def read_head(self) -> Head | None:
        row: Any = self._head.get()
        if row is None:
            return None
        version, sequence, base, tags, *rest = row
        if version != _LOG_HEAD_FORMAT:
            raise CorruptionError(
                "STATE_FORMAT_UNKNOWN",
                f"a key group's head has format {version}; this version reads "
                f"{_LOG_HEAD_FORMAT}.",
                fix="run the holdfast version that wrote the state, or a newer one.",
            )
        return Head(sequence, base, tuple(tags.split(",")), *rest)

    def write_head(self, head: Head) -> None:
        self._head.update(
            (
                _LOG_HEAD_FORMAT,
                head.sequence,
                head.base,
                ",".join(head.tags),
                head.live_keys,
                head.log_rows,
                head.log_bytes,
                head.wake,
            )
        )

    def read_block(self, sequence: int) -> bytes | None:
        found: Any = self._log.getValue((sequence,))
        return None if found is None else bytes(found[0])

    def write_block(self, sequence: int, block: bytes) -> None:
        self._log.updateValue((sequence,), (block,))

    def remove_block(self, sequence: int) -> None:
        self._log.removeKey((sequence,))

    # Blocks are numbered from 0 on; the broadcast state lies beside them.

    def read_broadcast(self) -> bytes | None:
        return self.read_block(_BROADCAST_BLOCK)

    def write_broadcast(self, state: bytes) -> None:
        self.write_block(_BROADCAST_BLOCK, state)


class SparkEntriesStore:
    """For the rocksdb backend: an entry per key and variable."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self.wake_at = handle.registerTimer
        self._head = handle.getValueState("head", _ENTRIES_HEAD_DDL)
        self.entries = entries_for(handle.getMapState("entries", KEY_DDL, VALUE_DDL))

    def read_head(self) -> DiskHead | None:
        row: Any = self._head.get()
        if row is None:
            return None
        version, live_keys, stored_bytes, wake = row
        return DiskHead(live_keys, stored_bytes, version, wake)

    def write_head(self, head: DiskHead) -> None:
        self._head.update((head.format, head.live_keys, head.stored_bytes, head.wake))

    def read_broadcast(self) -> bytes | None:
        return self.entries.get_many([BROADCAST])[0]

    def write_broadcast(self, state: bytes) -> None:
        self.entries.put_many([(BROADCAST, state)])
