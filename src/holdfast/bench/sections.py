"""The sections of the benchmark, in the order in which they run."""

from __future__ import annotations

from holdfast.bench import cold_start, file_sink, state_size, throughput

SECTIONS = (throughput.SECTION, state_size.SECTION, file_sink.SECTION, cold_start.SECTION)
