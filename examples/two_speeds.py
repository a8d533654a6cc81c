"""The same totals twice: as Arrow columns in Python, and natively in the JVM."""

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

SCHEMA = "user string, page string, diff bigint, ts timestamp"


class Totals(hf.KeyedProcess):
    """Many records of one key group at once; one row per user among them."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process_batch(self, keys, table, ctx):
        sums = table.group_by("user").aggregate([("diff", "sum")])
        users = sums.column("user").to_pylist()
        before = self.total.get_many(users)
        after = [
            old + new for old, new in zip(before, sums["diff_sum"].to_pylist(), strict=True)
        ]
        self.total.put_many(users, after)
        return pa.table({"user": users, "total": after})


columns = hf.Job("totals-columns", parallelism=2)
native = hf.Job("totals-native", parallelism=2)


@columns.pipeline
def in_python(flow: hf.Flow) -> None:
    edits = flow.source("edits", hf.sources.FileLog("edits-log", schema=SCHEMA))
    totals = flow.key_by(edits, "user").process("totals", Totals())
    flow.sink("out", totals, hf.sinks.Files("out/totals-columns"))


@native.pipeline
def in_the_jvm(flow: hf.Flow) -> None:
    edits = flow.source("edits", hf.sources.FileLog("edits-log", schema=SCHEMA))
    totals = flow.key_by(edits, "user").aggregate(
        "totals", total=F.sum("diff"), edits=F.count("*")
    )
    flow.sink("out", totals, hf.sinks.Files("out/totals-native"))
    flow.sink("top", totals.where("total > 5000"), hf.sinks.Console(rows=5))
