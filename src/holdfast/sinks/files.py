"""A directory of files, written exactly once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.sinks.base import Delivery, Sink


@dataclass(frozen=True)
class Files(Sink):
    """Parquet or JSON-lines files, one or a few per epoch, visible when committed.

    A reader that simply lists the directory sees committed files only.
    """

    path: str | os.PathLike[str]
    format: Literal["parquet", "json"] = "parquet"
    delivery: ClassVar[Delivery] = Delivery.TRANSACTIONAL

    def __post_init__(self) -> None:
        if self.format not in ("parquet", "json"):
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"{self.describe()}: format is {shorten(self.format)}.",
                fix='use "parquet" or "json" (lines).',
            )

    def describe(self) -> str:
        return f"Files({os.fspath(self.path)!r}, {self.format})"

    def with_suffix(self, suffix: str) -> Files:
        if not suffix:
            return self
        return replace(self, path=f"{os.fspath(self.path).rstrip('/')}{suffix}")
