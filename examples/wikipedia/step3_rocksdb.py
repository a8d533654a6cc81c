"""Step 3: the state on disk, for more users than memory holds. Incremental or full checkpoints:

WIKIPEDIA_INCREMENTAL=no holdfast run step3_rocksdb.py
"""

from __future__ import annotations

import os

from common import ComputeDiffs, balances_topic, edits_by_user

import holdfast as hf

INCREMENTAL = os.environ.get("WIKIPEDIA_INCREMENTAL", "yes") == "yes"

job = hf.Job(
    "wikipedia-balances",
    checkpoint=hf.CheckpointConfig(interval="1 s", backend="rocksdb", incremental=INCREMENTAL),
    restart=hf.ExponentialDelay(initial="1 s"),
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    balances = edits_by_user(flow).process("balances", ComputeDiffs())
    flow.sink("out", balances, balances_topic())
