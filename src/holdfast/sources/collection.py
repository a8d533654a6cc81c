"""Rows given in the program, for tests and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.sources.base import Source, check_positive, checked_schema
from holdfast.state.schema import SchemaLike


@dataclass(frozen=True)
class Collection(Source):
    """A fixed sequence of rows (tuples, or dicts by column name)."""

    rows: Sequence[Any]
    schema: SchemaLike | None = None
    rows_per_epoch: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", checked_schema(self.schema, self.describe()))
        check_positive("rows_per_epoch", self.rows_per_epoch, self.describe())

    def describe(self) -> str:
        return f"Collection({len(self.rows)} rows)"
