"""What all steps of the Wikipedia example share: where the edits come from and what is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from holdfast.job.flow import KeyedStream

SERVERS = os.environ.get("WIKIPEDIA_SERVERS", "127.0.0.1:9092")
EDITS = os.environ.get("WIKIPEDIA_EDITS", "edits")
BALANCES = os.environ.get("WIKIPEDIA_BALANCES", "balances")


class ComputeDiffs(hf.KeyedProcess):
    """By how many bytes a user has changed all wikis."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


def edits_by_user(flow: hf.Flow) -> KeyedStream:
    """Only the columns that are needed: the fewer, the faster they are read."""
    source = hf.sources.Kafka(
        EDITS, servers=SERVERS, schema="user string, diff bigint", max_per_epoch=5_000
    )
    return flow.key_by(flow.source("edits", source), "user")


def balances_topic() -> hf.sinks.Kafka:
    """Exactly once: to whoever reads it with isolation.level=read_committed."""
    return hf.sinks.Kafka(BALANCES, servers=SERVERS, key="user")
