"""A Kafka topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar, Literal

from holdfast.config import Duration
from holdfast.errors import JobDefinitionError, shorten
from holdfast.kafka_access import KafkaAccess, Servers, check_references, checked_access
from holdfast.sinks.base import Delivery, Sink
from holdfast.types import parse_duration

_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,200}$")
_OURS = ("transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks")
"""Settings of the producer on which the guarantee hangs."""


@dataclass(frozen=True)
class Kafka(Sink):
    """Rows as records of a topic, which must exist.

    Exactly once by default: the rows of an epoch appear in transactions, one per partition of
    the epoch, and a consumer with ``isolation.level=read_committed`` sees each of them once and
    in order per key, whatever crashes. ``guarantee="at_least_once"`` uses Spark's own writer:
    no transactions, and after a crash the rows of the epoch that was open come again.

    `key` and `partition` name a column, `headers` maps names of headers to columns. `value`
    names a column of text or bytes that is the record as it is; without it a record is a JSON
    object of all columns but `partition`. Without a key, rows go to any partition.

    `security` and `options` (of librdkafka's producer, or of Kafka's Java producer with
    at_least_once) take secrets by reference: "${env:NAME}", "${file:/path}".
    """

    rewindable: ClassVar[bool] = False

    topic: str
    servers: Servers = field(kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    value: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    partition: str | None = field(default=None, kw_only=True)
    guarantee: Literal["exactly_once", "at_least_once"] = field(
        default="exactly_once", kw_only=True
    )
    transaction_timeout: Duration = field(default="5 min", kw_only=True)
    security: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    like: str | None = field(default=None, kw_only=True, repr=False)
    """The topic that this one stands in for; it is made like that one if it is not there."""

    def __post_init__(self) -> None:
        name = self.describe()
        if not isinstance(self.topic, str) or not _TOPIC.match(self.topic):
            raise _invalid(
                f"{name}: {shorten(self.topic)} cannot be a topic.",
                "use letters, digits, '.', '_' and '-'.",
            )
        if self.guarantee not in ("exactly_once", "at_least_once"):
            raise _invalid(
                f"{name}: guarantee is {shorten(self.guarantee)}.",
                'use "exactly_once" or "at_least_once".',
            )
        object.__setattr__(self, "servers", self.access.servers)
        check_references(self.options, name)
        for option in self.options:
            if option in _OURS:
                raise _invalid(f"{name}: {option} is not yours to set.", "leave it out.")
        parse_duration(self.transaction_timeout, f"{name}: transaction_timeout")

    @property
    def delivery(self) -> Delivery:
        exactly_once = self.guarantee == "exactly_once"
        return Delivery.TRANSACTIONAL if exactly_once else Delivery.REPEATING

    @property
    def access(self) -> KafkaAccess:
        return checked_access(self.servers, self.security, self.describe())

    @property
    def timeout(self) -> timedelta:
        return parse_duration(self.transaction_timeout, "transaction_timeout")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        named = (self.key, self.value, *self.headers.values(), self.partition)
        return tuple(name for name in named if name is not None)

    def describe(self) -> str:
        return f"Kafka({self.topic!r})"

    def with_suffix(self, suffix: str) -> Kafka:
        if not suffix:
            return self
        return replace(self, topic=f"{self.topic}{suffix}", like=self.like or self.topic)


def _invalid(message: str, fix: str) -> JobDefinitionError:
    return JobDefinitionError("INVALID_OPTION", message, fix=fix)
