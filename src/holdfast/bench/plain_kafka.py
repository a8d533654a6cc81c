"""Plain Spark from a topic to a topic, as one writes it without holdfast."""

from __future__ import annotations

import argparse
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.bench.plain import ENCODING, RUNTIME, RunningTotal, run
from holdfast.bench.programs import KAFKA_DDL
from holdfast.engine.connectors import with_kafka


def _edits(session: SparkSession, options: argparse.Namespace) -> DataFrame:
    records = (
        session.readStream.format("kafka")
        .name("edits")
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_epoch)
        .load()
    )
    parsed = f.from_json(f.col("value").cast("string"), KAFKA_DDL)
    return records.select(parsed.alias("edit")).select("edit.*")


def _written(totals: DataFrame, options: argparse.Namespace) -> DataStreamWriter:
    records = totals.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
    return (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.servers)
        .option("topic", options.target)
    )


def running_total(session: SparkSession, options: argparse.Namespace) -> DataStreamWriter:
    totals = (
        _edits(session, options)
        .groupBy("user")
        .transformWithState(RunningTotal(), "user string, total bigint", "Append", "None")
    )
    return _written(totals, options).outputMode("append")


def group_by(session: SparkSession, options: argparse.Namespace) -> DataStreamWriter:
    session.conf.set(ENCODING, "unsaferow")
    totals = _edits(session, options).groupBy("user").agg(f.sum("diff").alias("total"))
    return _written(totals, options).outputMode("update")


QUERIES = {"transform-with-state": running_total, "group-by": group_by}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    for name in ("servers", "source", "target", "per-epoch", "checkpoint", "jars", "packages"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args()
    runtime = replace(RUNTIME, kafka_jars=options.jars)
    if options.packages:
        runtime = replace(runtime, kafka_packages=options.packages)
    run(QUERIES[options.query], options, with_kafka(runtime))


if __name__ == "__main__":
    main()
