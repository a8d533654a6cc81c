"""Plain Spark programs, as one writes them without holdfast; each runs in its own process.

The session is made by holdfast's own functions: the same configuration on both sides, down
to the file manager and the sockets, so that only the programs differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from holdfast.bench.programs import DRIVER_MEMORY, EDITS_DDL, KEYED_DDL, MASTER, PARTITIONS
from holdfast.config import CheckpointConfig, RuntimeConfig
from holdfast.engine.session import driver_session, query_session

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
RUNTIME = RuntimeConfig(
    storage=Path(),
    master=MASTER,
    driver_memory=DRIVER_MEMORY,
    # Of no cost to a query, and none of its reports is lost.
    spark={"spark.sql.streaming.numRecentProgressUpdates": "1000"},
)


class RunningTotal(StatefulProcessor):
    """Running total of one user; one read and one write of the state per user and batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        stored = self._total.get()
        total = stored[0] if stored is not None else 0
        for row in rows:
            total += row.diff
            yield Row(user=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        """Nothing was opened."""


def running_total(session: SparkSession, options: argparse.Namespace) -> DataStreamWriter:
    totals = (
        _edits(session, options, KEYED_DDL)
        .groupBy("user")
        .transformWithState(RunningTotal(), "user string, total bigint", "Append", "None")
    )
    return totals.writeStream.outputMode("append").format("noop")


def group_by(session: SparkSession, options: argparse.Namespace) -> DataStreamWriter:
    # Spark's own operators cannot keep their state as Avro; a job's .aggregate does not either.
    session.conf.set(ENCODING, "unsaferow")
    totals = (
        _edits(session, options, KEYED_DDL).groupBy("user").agg(f.sum("diff").alias("total"))
    )
    return totals.writeStream.outputMode("update").format("noop")


def file_sink(session: SparkSession, options: argparse.Namespace) -> DataStreamWriter:
    edits = _edits(session, options, EDITS_DDL)
    return edits.writeStream.outputMode("append").format("parquet").option("path", options.out)


QUERIES: dict[str, Callable[[SparkSession, argparse.Namespace], DataStreamWriter]] = {
    "transform-with-state": running_total,
    "group-by": group_by,
    "file-sink": file_sink,
}


def _edits(session: SparkSession, options: argparse.Namespace, schema: str) -> DataFrame:
    return (
        session.readStream.format("parquet")
        .name("edits")
        .option("maxFilesPerTrigger", options.files_per_epoch)
        .option("maxFileAge", "36500d")
        .schema(schema)
        .load(options.source)
    )


def main() -> None:
    options = _options()
    run(QUERIES[options.query], options, RUNTIME)


def run(
    build: Callable[[SparkSession, argparse.Namespace], DataStreamWriter],
    options: argparse.Namespace,
    runtime: RuntimeConfig,
) -> None:
    """Until the input is used up."""
    began = time.monotonic()
    timings: dict[str, float] = {}

    def note(step: str) -> None:
        timings[step] = round(time.monotonic() - began, 3)

    spark = driver_session(runtime)
    note("jvm")
    session = query_session(spark, CheckpointConfig(), PARTITIONS, runtime)
    writer = build(session, options)
    note("plan")
    query = (
        writer.option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    note("query")
    _emit({"event": "started", "timings": timings})
    last = -1
    while not query.awaitTermination(1):
        last = _emit_epochs(query, last)
    _emit_epochs(query, last)
    spark.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("--source", required=True)
    parser.add_argument("--files-per-epoch", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def _emit_epochs(query: StreamingQuery, last: int) -> int:
    """Report the micro-batches since `last`, in the form that `holdfast run --json` has."""
    for progress in query.recentProgress:
        if progress["batchId"] > last and progress["numInputRows"]:
            last = progress["batchId"]
            started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
            durations = progress["durationMs"]
            took = timedelta(milliseconds=durations["triggerExecution"])
            _emit(
                {
                    "event": "epoch",
                    "epoch": last,
                    "started": started.isoformat(),
                    "ended": (started + took).isoformat(),
                    "input_rows": progress["numInputRows"],
                    "phases": {
                        "plan": durations.get("queryPlanning", 0) / 1000,
                        "execute": durations.get("addBatch", 0) / 1000,
                    },
                }
            )
    return last


def _emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
