"""A key group's part of Spark's state store: one map of entries. Spark knows which group."""

from __future__ import annotations

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from holdfast.engine.entries import KEY_DDL, VALUE_DDL, entries_for
from holdfast.state.stored import KeyEntries, LogEntries

ENTRIES = "entries"
"""The name of the map in Spark's state store."""


def store_for(handle: StatefulProcessorHandle, *, rocksdb: bool) -> KeyEntries | LogEntries:
    entries = entries_for(handle.getMapState(ENTRIES, KEY_DDL, VALUE_DDL))
    return (KeyEntries if rocksdb else LogEntries)(entries, handle.registerTimer)
