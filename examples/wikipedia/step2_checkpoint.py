"""Step 2: a checkpoint every second. After a crash the job goes on where it was."""

from __future__ import annotations

from common import ComputeDiffs, balances_topic, edits_by_user

import holdfast as hf

job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.ExponentialDelay(initial="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    balances = edits_by_user(flow).process("balances", ComputeDiffs())
    flow.sink("out", balances, balances_topic())
