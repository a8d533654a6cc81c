"""Step 5: changed code. The state stays in bytes; what comes out is in kilobytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common import balances_topic, edits_by_user

import holdfast as hf


class ComputeKilobytes(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, kilobytes double"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        self.total.value += edit.diff
        yield edit.user, self.total.value / 1000


job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.ExponentialDelay(initial="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    balances = edits_by_user(flow).process("balances", ComputeKilobytes())
    flow.sink("out", balances, balances_topic())
