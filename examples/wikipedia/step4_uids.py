"""Step 4: a second step. State belongs to a uid, so "balances" keeps its own, and "activity"
begins empty, although it now comes first in the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common import BALANCES, SERVERS, ComputeDiffs, balances_topic, edits_by_user

import holdfast as hf


class CountEdits(hf.KeyedProcess):
    edits = hf.ValueState("bigint", default=0)
    output = "user string, edits bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        self.edits.value += 1
        yield edit.user, self.edits.value


job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.ExponentialDelay(initial="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    edits = edits_by_user(flow)
    activity = edits.process("activity", CountEdits())
    balances = edits.process("balances", ComputeDiffs())
    flow.sink("counts", activity, hf.sinks.Kafka(f"{BALANCES}-counts", servers=SERVERS))
    flow.sink("out", balances, balances_topic())
