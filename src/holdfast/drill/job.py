"""The job that drills break: the running balance of the demo, in small epochs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import holdfast as hf
from holdfast.demo.job import RunningBalance
from holdfast.faults import fault_point

TIMEOUT_VARIABLE = "DRILL_EPOCH_TIMEOUT"


class BrittleBalance(RunningBalance):
    """Its worker can be made to fail at a record."""

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        fault_point("drill.record")
        return super().process(edit, ctx)


job = hf.Job(
    "drill",
    checkpoint=hf.CheckpointConfig(interval="0.2 s", timeout=os.environ.get(TIMEOUT_VARIABLE)),
    restart=hf.FixedDelay(attempts=5, delay="0.1 s"),
    parallelism=2,
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    edits = flow.source(
        "edits",
        hf.sources.FileLog(
            "edits",
            schema="edit bigint, user string, diff bigint",
            max_segments_per_epoch=2,
        ),
    )
    balances = flow.key_by(edits, "user").process("balances", BrittleBalance())
    flow.sink("out", balances, hf.sinks.Files("balances", format="parquet"))
