"""Running balance of bytes per Wikipedia user."""

import holdfast as hf


class ComputeDiffs(hf.KeyedProcess):
    """Running balance of bytes per user."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit, ctx):
        self.total.value += edit.diff
        yield edit.user, self.total.value


job = hf.Job("wiki-diffs", checkpoint=hf.CheckpointConfig(interval="1 s"), parallelism=2)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    edits = flow.source(
        "edits",
        hf.sources.FileLog(
            "edits-log",
            schema="user string, diff bigint, ts timestamp",
            max_segments_per_epoch=2,
        ),
    )
    balances = flow.key_by(edits, "user").process("balances", ComputeDiffs())
    flow.sink("out", balances, hf.sinks.Files("out/balances", format="parquet"))
