"""The embedded file log: a durable, replayable stream on a plain directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast.sources.base import (
    BadRecords,
    Source,
    check_bad_records,
    check_positive,
    checked_schema,
)
from holdfast.state.schema import SchemaLike


@dataclass(frozen=True)
class FileLog(Source):
    """A log that :class:`holdfast.FileLogProducer` appends to. No server needed."""

    path: str | os.PathLike[str]
    schema: SchemaLike | None = None
    max_segments_per_epoch: int | None = field(default=None, kw_only=True)
    on_bad_record: BadRecords = field(default="fail", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", checked_schema(self.schema, self.describe()))
        check_bad_records(self.on_bad_record, self.describe())
        check_positive("max_segments_per_epoch", self.max_segments_per_epoch, self.describe())

    def describe(self) -> str:
        return f"FileLog({os.fspath(self.path)!r})"
