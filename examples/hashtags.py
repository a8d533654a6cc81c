"""Which hash tags people use: counts over five minutes, every minute."""

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf


class CountTags(hf.WindowProcess):
    """How often a tag was used in a window."""

    accumulator = "bigint"
    output = "tag string, since timestamp, until timestamp, uses bigint, firing string"

    def create(self):
        return 0

    def add(self, uses, message):
        return uses + 1

    def result(self, window, uses, ctx):
        yield ctx.key, window.start, window.end, uses, window.firing


job = hf.Job("hashtags", checkpoint=hf.CheckpointConfig(interval="1 s"), parallelism=2)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    messages = flow.source(
        "messages",
        hf.sources.FileLog(
            "messages-log",
            schema="user string, text string, ts timestamp",
            max_segments_per_epoch=2,
        ),
    )
    messages = flow.watermark(messages, "ts", delay="10 s")
    found = F.explode(F.regexp_extract_all(F.lower("text"), F.lit(r"#(\w+)")))
    tags = messages.select(found.alias("tag"), "user", "ts")
    counts = (
        flow.key_by(tags, "tag")
        .window(hf.windows.Sliding("5 min", every="1 min"), allowed_lateness="1 min")
        .process("counts", CountTags())
    )
    flow.sink("out", counts, hf.sinks.Files("out/hashtags"))
    flow.sink("late", counts.side("late"), hf.sinks.Files("out/hashtags-late"))
