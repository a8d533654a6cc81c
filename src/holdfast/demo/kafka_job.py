"""The job of `holdfast demo --kafka`: the same balances, from a topic to a topic."""

from __future__ import annotations

import os

import holdfast as hf
from holdfast.demo.job import RunningBalance

SERVERS_VARIABLE = "DEMO_SERVERS"
PER_EPOCH_VARIABLE = "DEMO_PER_EPOCH"
EDITS, BALANCES = "edits", "balances"

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
    servers = os.environ[SERVERS_VARIABLE]
    edits = flow.source(
        "edits",
        hf.sources.Kafka(
            EDITS,
            servers=servers,
            schema="edit bigint, user string, diff bigint",
            # A backlog is worked off in epochs of this size.
            max_per_epoch=int(os.environ[PER_EPOCH_VARIABLE]),
        ),
    )
    balances = flow.key_by(edits, "user").process("balances", balance)
    flow.sink("out", balances, hf.sinks.Kafka(BALANCES, servers=servers, key="user"))
