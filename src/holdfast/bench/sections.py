"""The sections of the benchmark, in the order in which they run."""

from __future__ import annotations

from holdfast.bench import (
    cold_start,
    file_sink,
    kafka,
    recovery,
    rocksdb_size,
    savepoints,
    state_size,
    throughput,
    timers,
)

SECTIONS = (
    throughput.SECTION,
    state_size.SECTION,
    rocksdb_size.SECTION,
    timers.SECTION,
    file_sink.SECTION,
    cold_start.SECTION,
    recovery.SECTION,
    savepoints.SECTION,
    kafka.SECTION,
)
