"""Step 4: a second step. State belongs to a uid: "balances" keeps its own, "activity" begins
empty; it counts how often the balance of a user has changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common import BALANCES, SERVERS, ComputeDiffs, balances_topic, edits_by_user

import holdfast as hf


class CountChanges(hf.KeyedProcess):
    changes = hf.ValueState("bigint", default=0)
    output = "user string, changes bigint"

    def process(self, balance: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        self.changes.value += 1
        yield balance.user, self.changes.value


job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.ExponentialDelay(initial="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    balances = edits_by_user(flow).process("balances", ComputeDiffs())
    activity = flow.key_by(balances, "user").process("activity", CountChanges())
    flow.sink("counts", activity, hf.sinks.Kafka(f"{BALANCES}-counts", servers=SERVERS))
    flow.sink("out", balances, balances_topic())
