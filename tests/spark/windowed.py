"""Window processes for jobs in the tests' JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import holdfast as hf

OUTPUT = (
    "user string, start timestamp, end timestamp, firing string, edits bigint, total bigint"
)


class Sums(hf.WindowProcess):
    """Edits and their sum per window, from an accumulator."""

    accumulator = "edits bigint, total bigint"
    output = OUTPUT

    def create(self) -> Any:
        return 0, 0

    def add(self, accumulator: Any, record: Any) -> Any:
        return accumulator.edits + 1, accumulator.total + record.n

    def merge(self, a: Any, b: Any) -> Any:
        return a.edits + b.edits, a.total + b.total

    def result(
        self, window: hf.windows.Window, accumulator: Any, ctx: hf.Context
    ) -> Iterator[Any]:
        yield ctx.key, window.start, window.end, window.firing, *accumulator


class SumsOfRecords(hf.WindowProcess):
    """The same from the records."""

    keep = "n bigint"
    output = OUTPUT

    def process(
        self, window: hf.windows.Window, records: Sequence[Any], ctx: hf.Context
    ) -> Iterator[Any]:
        total = sum(record.n for record in records)
        yield ctx.key, window.start, window.end, window.firing, len(records), total
