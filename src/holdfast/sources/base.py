"""What every source declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.schema import SchemaLike, ddl_text, parse_columns

BadRecords = Literal["fail", "skip", "side"]
BAD_SIDE = "bad"
"""The side output of a source that holds records which do not parse."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Base of the source descriptors. A descriptor says what to read; the engine reads it."""

    replayable: ClassVar[bool] = True
    """Whether a position can be read again with the same result."""

    def describe(self) -> str:
        return type(self).__name__

    @property
    def row_schema(self) -> str:
        """The columns of its rows."""
        return str(getattr(self, "schema", ""))

    @property
    def bad_schema(self) -> str:
        """The columns of its side output of records that do not parse."""
        return "raw string, reason string, file string"


def checked_schema(schema: SchemaLike | None, source: str) -> str:
    if schema is None:
        raise JobDefinitionError(
            "SCHEMA_MISSING",
            f"{source} has no schema.",
            fix='name the columns, such as schema="user string, diff bigint".',
        )
    text = ddl_text(schema, f"schema of {source}")
    parse_columns(text, f"schema of {source}")
    return text


def check_bad_records(value: str, source: str) -> None:
    if value not in ("fail", "skip", "side"):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"{source}: on_bad_record is {shorten(value)}.",
            fix='use "fail" (stop and name the record), "skip" (count it) or "side" '
            '(read it with .side("bad")).',
        )


def check_positive(name: str, value: int | None, source: str) -> None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"{source}: {name} is {shorten(value)}.",
            fix=f"use a whole number of at least 1 for {name}, or leave it out.",
        )
