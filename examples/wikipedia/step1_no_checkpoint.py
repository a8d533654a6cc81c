"""Step 1: no checkpoints. After a crash every balance begins at zero, and all comes again."""

from __future__ import annotations

from common import BALANCES, SERVERS, ComputeDiffs, edits_by_user

import holdfast as hf

job = hf.Job(
    "wikipedia-scratch",
    checkpoint=hf.CheckpointConfig(interval="1 s", mode="none"),
    restart=hf.FixedDelay(attempts=3, delay="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    balances = edits_by_user(flow).process("balances", ComputeDiffs())
    sink = hf.sinks.Kafka(
        f"{BALANCES}-scratch", servers=SERVERS, key="user", guarantee="at_least_once"
    )
    flow.sink("out", balances, sink)
