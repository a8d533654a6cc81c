"""A directory of files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.sources.base import (
    BadRecords,
    Source,
    check_bad_records,
    check_positive,
    checked_schema,
)
from holdfast.state.schema import SchemaLike

FileFormat = Literal["json", "csv", "parquet"]


@dataclass(frozen=True)
class Files(Source):
    """Files that appear in a directory, each read once, oldest first.

    JSON means JSON lines; CSV has a header line unless ``header=False``. A file must appear
    whole (write it elsewhere on the file system and rename it), and not change afterwards.
    `on_bad_record` says what happens to a record that does not parse: "fail" stops the job
    and names file and line, "skip" counts it, "side" sends it to ``.side("bad")`` with
    columns ``raw``, ``reason`` and ``file``.
    """

    path: str | os.PathLike[str]
    format: FileFormat = "json"
    schema: SchemaLike | None = None
    max_files_per_epoch: int | None = field(default=None, kw_only=True)
    on_bad_record: BadRecords = field(default="fail", kw_only=True)
    header: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        name = self.describe()
        if self.format not in ("json", "csv", "parquet"):
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"{name}: format is {shorten(self.format)}.",
                fix='use "json" (lines), "csv" or "parquet".',
            )
        object.__setattr__(self, "schema", checked_schema(self.schema, name))
        check_bad_records(self.on_bad_record, name)
        check_positive("max_files_per_epoch", self.max_files_per_epoch, name)
        if self.format == "parquet" and self.on_bad_record != "fail":
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"{name}: on_bad_record={self.on_bad_record!r} with Parquet, where a file is "
                "whole or damaged but has no bad lines.",
                fix="leave on_bad_record out for Parquet.",
            )

    def describe(self) -> str:
        return f"Files({os.fspath(self.path)!r})"
