"""Topics of Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.kafka_access import KafkaAccess, Servers, check_references, checked_access
from holdfast.sources.avro import avro_columns, avro_record
from holdfast.sources.base import (
    BadRecords,
    Source,
    check_bad_records,
    check_positive,
    checked_schema,
)
from holdfast.state.schema import SchemaLike, parse_columns

KafkaFormat = Literal["json", "avro", "csv", "raw", "string"]
Start = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
EARLIEST, LATEST = -2, -1
"""What Spark takes for an offset in `start`."""
METADATA = ("topic", "partition", "offset", "timestamp", "key")
_METADATA_DDL = "topic string, partition int, offset bigint, timestamp timestamp, key binary"
BAD_DDL = (
    "raw string, reason string, topic string, partition int, offset bigint, timestamp timestamp"
)
_FORMATS = ("json", "avro", "csv", "raw", "string")
_PLAIN = {"raw": "value binary", "string": "value string"}
_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")
# What holdfast decides, or takes as an argument of its own.
_TAKEN = ("bootstrap.servers", "group.id", "isolation.level", "auto.offset.reset")


@dataclass(frozen=True)
class Kafka(Source):
    """Records of one or several topics, each read once, in the order of their partition.

    `schema` names the columns of a JSON object or of a CSV line; with ``format="avro"`` it is
    the Avro schema, as JSON text. "raw" and "string" give one column, ``value``.
    ``with_metadata=True`` adds ``topic``, ``partition``, ``offset``, ``timestamp`` and ``key``.

    `start` counts when a job reads the source for the first time; afterwards it goes on where
    it was. `on_bad_record` is as for files; the error names topic, partition and offset.
    `security` says how to log in, with secrets by reference (``${env:NAME}``,
    ``${file:/path}``); `options` are further settings of Kafka's Java consumer.
    """

    topics: str | Sequence[str] | None = None
    pattern: str | None = field(default=None, kw_only=True)
    servers: Servers = field(default="", kw_only=True)
    format: KafkaFormat = field(default="json", kw_only=True)
    schema: SchemaLike | None = field(default=None, kw_only=True)
    start: Start = field(default="earliest", kw_only=True)
    max_per_epoch: int | None = field(default=None, kw_only=True)
    read_committed: bool = field(default=True, kw_only=True)
    on_bad_record: BadRecords = field(default="fail", kw_only=True)
    on_data_loss: Literal["fail", "continue"] = field(default="fail", kw_only=True)
    group_id: str | None = field(default=None, kw_only=True)
    with_metadata: bool = field(default=False, kw_only=True)
    security: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check_topics()
        name = self.describe()
        object.__setattr__(self, "servers", self._access(name).servers)
        if self.format not in _FORMATS:
            raise _invalid(f"{name}: format is {shorten(self.format)}.", _one_of(_FORMATS))
        object.__setattr__(self, "schema", self._checked_schema(name))
        check_bad_records(self.on_bad_record, name)
        if self.format in _PLAIN and self.on_bad_record != "fail":
            raise _invalid(
                f"{name}: on_bad_record={self.on_bad_record!r} with format={self.format!r}, "
                "where nothing is parsed and so nothing is bad.",
                "leave on_bad_record out.",
            )
        if self.on_data_loss not in ("fail", "continue"):
            raise _invalid(
                f"{name}: on_data_loss is {shorten(self.on_data_loss)}.",
                'use "fail" (stop, and say what is gone) or "continue" (count it).',
            )
        check_positive("max_per_epoch", self.max_per_epoch, name)
        self._check_start(name)
        self._check_options(name)

    def describe(self) -> str:
        what = repr(self.pattern) if self.topics is None else ", ".join(self.topic_names)
        return f"Kafka({what} at {self.servers})" if self.servers else f"Kafka({what})"

    @property
    def row_schema(self) -> str:
        columns = str(self.schema)
        if self.format == "avro":
            columns = avro_columns(avro_record(columns, "schema"), "schema")
        return f"{columns}, {_METADATA_DDL}" if self.with_metadata else columns

    @property
    def bad_schema(self) -> str:
        return BAD_DDL

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Empty for a pattern."""
        if self.topics is None:
            return ()
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def access(self) -> KafkaAccess:
        return self._access(self.describe())

    @property
    def parses(self) -> bool:
        """Whether a record can be bad."""
        return self.format not in _PLAIN

    def group(self, job: str) -> str:
        """The consumer group under which the position is shown to Kafka's own tools."""
        return self.group_id or f"holdfast-{job}"

    # -- checks ---------------------------------------------------------------------------

    def _access(self, name: str) -> KafkaAccess:
        return checked_access(self.servers, self.security, name)

    def _check_topics(self) -> None:
        if (self.topics is None) == (self.pattern is None):
            raise _invalid(
                "Kafka: topics and pattern are "
                + ("both missing." if self.topics is None else "both given."),
                'name topics, such as Kafka("edits", …), or give pattern="edits-.*".',
            )
        for topic in self.topic_names:
            if not isinstance(topic, str) or not _TOPIC.match(topic):
                raise _invalid(
                    f"Kafka: {shorten(topic)} is no name of a topic.",
                    "use letters, digits, '.', '_' and '-'.",
                )
        if self.topics is not None and not self.topic_names:
            raise _invalid("Kafka: topics is empty.", "name at least one topic.")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise _invalid(
                f"Kafka: pattern is {shorten(self.pattern)}: {error}.",
                "write a regular expression for the whole name of a topic.",
            ) from error

    def _checked_schema(self, name: str) -> str:
        if self.format in _PLAIN:
            if self.schema is not None:
                raise _invalid(
                    f"{name}: format={self.format!r} has no schema: it gives a column `value`.",
                    "leave schema out.",
                )
            return _PLAIN[self.format]
        if self.format == "avro":
            record = avro_record(self.schema, name)
            self._refuse_clash([each["name"] for each in record.get("fields", ())], name)
            avro_columns(record, name)
            return json.dumps(record)
        text = checked_schema(self.schema, name)
        self._refuse_clash(parse_columns(text).names, name)
        return text

    def _refuse_clash(self, columns: Sequence[str], name: str) -> None:
        clash = [each for each in METADATA if each in columns] if self.with_metadata else []
        if clash:
            raise _invalid(
                f"{name}: with_metadata=True, and the schema has a column {clash[0]!r} too.",
                "rename it in the schema, or leave with_metadata out.",
            )

    def _check_start(self, name: str) -> None:
        start = self.start
        if start in ("earliest", "latest"):
            return
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise _invalid(
                    f"{name}: start is {start}, without a time zone.",
                    "say which: datetime(…, tzinfo=UTC).",
                )
            return
        if not isinstance(start, Mapping) or not all(
            isinstance(offsets, Mapping)
            and all(isinstance(at, int) and at >= EARLIEST for at in offsets.values())
            for offsets in start.values()
        ):
            raise _invalid(
                f"{name}: start is {shorten(start)}.",
                'use "earliest", "latest", a datetime, or offsets by partition: '
                '{"edits": {0: 1200, 1: 900}}; -2 is the earliest, -1 the latest.',
            )
        unknown = [topic for topic in start if self.topics and topic not in self.topic_names]
        if unknown:
            raise _invalid(
                f"{name}: start names topic {unknown[0]!r}, which is not read.",
                "name only topics that are read.",
            )

    def _check_options(self, name: str) -> None:
        check_references(self.options, name)
        for key in self.options:
            if key.removeprefix("kafka.") in _TAKEN:
                raise _invalid(
                    f"{name}: option {key!r} belongs to holdfast.",
                    "use servers, group_id, read_committed and start.",
                )


def _one_of(words: Sequence[str]) -> str:
    return f"use one of {', '.join(map(repr, words))}."


def _invalid(message: str, fix: str) -> JobDefinitionError:
    return JobDefinitionError("INVALID_OPTION", message, fix=fix)
