"""The running balance of bytes of every Wikipedia user, from Kafka to Kafka, exactly once.

    holdfast kafka up --port 9092
    holdfast wikipedia --to kafka:edits --rate 1000          # or --from live
    holdfast run examples/wikipedia/balances.py

The topic of the balances has to be there; `holdfast wikipedia` makes only that of the edits.
Read it with `isolation.level=read_committed`: then every balance is there once, in the order of
each user's edits, whatever was killed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import holdfast as hf
from holdfast.wikipedia.edit import SCHEMA

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


job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="5 s"),
    restart=hf.ExponentialDelay(),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    edits = flow.source(
        "edits",
        hf.sources.Kafka(EDITS, servers=SERVERS, schema=SCHEMA, max_per_epoch=500_000),
    )
    balances = flow.key_by(edits, "user").process("balances", ComputeDiffs())
    flow.sink("out", balances, hf.sinks.Kafka(BALANCES, servers=SERVERS, key="user"))
