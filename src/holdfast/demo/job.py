"""The job of `holdfast demo`: the running balance of bytes of every Wikipedia user.

It reads and writes below the working directory, so it can be run again by hand::

    cd ~/.holdfast/demo && holdfast run …/holdfast/demo/job.py --home .
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import holdfast as hf


class RunningBalance(hf.KeyedProcess):
    """How many edits a user has made, and by how many bytes they changed the wiki."""

    edits = hf.ValueState("bigint", default=0)
    total = hf.ValueState("bigint", default=0)
    output = "user string, edit bigint, nth bigint, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        self.edits.value += 1
        self.total.value += edit.diff
        yield edit.user, edit.edit, self.edits.value, self.total.value


job = hf.Job(
    "wiki-demo",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.FixedDelay(attempts=3, delay="1 s"),
    parallelism=2,
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    pipeline_with(flow, RunningBalance())


def pipeline_with(flow: hf.Flow, balance: RunningBalance) -> None:
    edits = flow.source(
        "edits",
        hf.sources.FileLog(
            "edits",
            schema="edit bigint, user string, diff bigint",
            max_segments_per_epoch=5,  # a backlog is worked off in epochs of this size
        ),
    )
    balances = flow.key_by(edits, "user").process("balances", balance)
    flow.sink("out", balances, hf.sinks.Files("balances", format="parquet"))
