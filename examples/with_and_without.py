"""A lesson: the same job with checkpoints, and without.

Run both, kill them with kill -9, look at `holdfast attempts` and at the output.
docs/guide/running.md walks through it.
"""

import holdfast as hf


class Balance(hf.KeyedProcess):
    """Running balance of bytes per user."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit, ctx):
        self.total.value += edit.diff
        yield edit.user, self.total.value


restart = hf.FixedDelay(attempts=5, delay="1 s")
kept = hf.Job("kept", restart=restart, checkpoint=hf.CheckpointConfig(interval="1 s"))
scratch = hf.Job(
    "scratch", restart=restart, checkpoint=hf.CheckpointConfig(interval="1 s", mode="none")
)


@kept.pipeline
def with_checkpoints(flow: hf.Flow) -> None:
    _balances(flow, "out/kept")


@scratch.pipeline
def without(flow: hf.Flow) -> None:
    _balances(flow, "out/scratch")


def _balances(flow: hf.Flow, out: str) -> None:
    source = hf.sources.FileLog(
        "edits-log",
        schema="user string, diff bigint, ts timestamp",
        max_segments_per_epoch=2,
    )
    edits = flow.source("edits", source)
    balances = flow.key_by(edits, "user").process("balances", Balance())
    flow.sink("out", balances, hf.sinks.Files(out))
