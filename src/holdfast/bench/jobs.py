"""The holdfast jobs of the benchmark, run as a user runs them: `holdfast run jobs.py --job …`.

The folders come by environment variable; this file is loaded by path, in a process of its
own, and again by its name in the Python workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast.bench.programs import (
    EDITS_DDL,
    FILES_VARIABLE,
    KAFKA_DDL,
    KEYED_DDL,
    OUT_VARIABLE,
    PARTITIONS,
    SERVERS_VARIABLE,
    SOURCE_VARIABLE,
    TIMED_DDL,
    WATCH_VARIABLE,
)

if TYPE_CHECKING:
    from holdfast.job.flow import KeyedStream, Stream


class Totals(hf.KeyedProcess):
    """Running total per user, a record at a time."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[str, int]]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


class TotalsByColumn(hf.KeyedProcess):
    """The same with Arrow columns: sort by user, cumulate, add what the state says."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process_batch(self, keys: Sequence[str], table: pa.Table, ctx: hf.Context) -> pa.Table:
        users = table["user"].combine_chunks().dictionary_encode()
        names, codes = users.dictionary.to_pylist(), users.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        diffs, codes = table["diff"].to_numpy()[order], codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        running = np.cumsum(diffs)
        running += (diffs[starts] - running[starts] + self.total.get_many(names))[codes]
        self.total.put_many(names, running[np.append(starts[1:], len(codes)) - 1].tolist())
        totals = np.empty_like(running)
        totals[order] = running
        return pa.table({"user": table["user"], "total": totals})


class Reminders(hf.KeyedProcess):
    """The running total again; a record with a due time also asks for a timer.

    One row per record and one per timer, so the rows say how many timers have fired.
    """

    total = hf.ValueState("bigint", default=0)
    timers = "event"
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[str, int]]:
        self.total.value += edit.diff
        if edit.due is not None:
            ctx.timers.register(edit.due)
        yield edit.user, self.total.value

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[tuple[str, int]]:
        yield ctx.key, self.total.value


def _edits(flow: hf.Flow, schema: str) -> Stream:
    return flow.source(
        "edits",
        hf.sources.Files(
            os.environ[SOURCE_VARIABLE],
            format="parquet",
            schema=schema,
            max_files_per_epoch=int(os.environ[FILES_VARIABLE]),
        ),
    )


def _by_user(flow: hf.Flow) -> KeyedStream:
    return flow.key_by(_edits(flow, KEYED_DDL), "user")


_ROCKSDB = hf.CheckpointConfig(backend="rocksdb")

process = hf.Job("bench-process", parallelism=PARTITIONS)
process_rocksdb = hf.Job("bench-process-rocksdb", parallelism=PARTITIONS, checkpoint=_ROCKSDB)
process_batch = hf.Job("bench-process-batch", parallelism=PARTITIONS)
aggregate = hf.Job("bench-aggregate", parallelism=PARTITIONS)
rolling = hf.Job("bench-rolling", parallelism=PARTITIONS)
reminders = hf.Job("bench-reminders", parallelism=PARTITIONS)
reminders_rocksdb = hf.Job(
    "bench-reminders-rocksdb", parallelism=PARTITIONS, checkpoint=_ROCKSDB
)
files = hf.Job("bench-files", parallelism=PARTITIONS)
recovery = hf.Job(
    "bench-recovery",
    parallelism=PARTITIONS,
    restart=hf.FixedDelay(attempts=1000, delay="0 s"),
)
kafka_process = hf.Job("bench-kafka-process", parallelism=PARTITIONS)
kafka_process_repeating = hf.Job(
    "bench-kafka-process-repeating",
    parallelism=PARTITIONS,
    checkpoint=hf.CheckpointConfig(mode="at_least_once"),
)
kafka_aggregate = hf.Job("bench-kafka-aggregate", parallelism=PARTITIONS)


@process.pipeline
@process_rocksdb.pipeline
def _process(flow: hf.Flow) -> None:
    edits = _edits(flow, KEYED_DDL)
    if WATCH_VARIABLE in os.environ:
        from holdfast.bench.rocksdb_memory import watch

        watch(edits.sparkSession)
    totals = flow.key_by(edits, "user").process("totals", Totals())
    flow.sink("out", totals, hf.sinks.Discard())


@process_batch.pipeline
def _process_batch(flow: hf.Flow) -> None:
    flow.sink("out", _by_user(flow).process("totals", TotalsByColumn()), hf.sinks.Discard())


@aggregate.pipeline
def _aggregate(flow: hf.Flow) -> None:
    from pyspark.sql import functions as f

    totals = _by_user(flow).aggregate("totals", total=f.sum("diff"))
    flow.sink("out", totals, hf.sinks.Discard())


@rolling.pipeline
def _rolling(flow: hf.Flow) -> None:
    from pyspark.sql import functions as f

    totals = _by_user(flow).rolling("totals", total=f.sum("diff"))
    flow.sink("out", totals, hf.sinks.Discard())


@reminders.pipeline
@reminders_rocksdb.pipeline
def _reminders(flow: hf.Flow) -> None:
    edits = flow.watermark(_edits(flow, TIMED_DDL), "ts", delay="0 s")
    # No record is late here, and one that is must not be missing in the count.
    fired = flow.key_by(edits, "user").process("totals", Reminders(), late="process")
    flow.sink("out", fired, hf.sinks.Discard())


@recovery.pipeline
def _recovery(flow: hf.Flow) -> None:
    totals = _by_user(flow).process("totals", Totals())
    flow.sink("out", totals, hf.sinks.Files(os.environ[OUT_VARIABLE]))


@files.pipeline
def _files(flow: hf.Flow) -> None:
    flow.sink("out", _edits(flow, EDITS_DDL), hf.sinks.Files(os.environ[OUT_VARIABLE]))


def _kafka_edits(flow: hf.Flow) -> KeyedStream:
    edits = flow.source(
        "edits",
        hf.sources.Kafka(
            os.environ[SOURCE_VARIABLE],
            servers=os.environ[SERVERS_VARIABLE],
            schema=KAFKA_DDL,
            max_per_epoch=int(os.environ[FILES_VARIABLE]),
        ),
    )
    return flow.key_by(edits, "user")


def _kafka_totals(
    flow: hf.Flow, totals: Stream, guarantee: Literal["exactly_once", "at_least_once"]
) -> None:
    topic = os.environ[OUT_VARIABLE]
    sink = hf.sinks.Kafka(
        topic, servers=os.environ[SERVERS_VARIABLE], key="user", guarantee=guarantee
    )
    flow.sink(topic, totals, sink)


@kafka_process.pipeline
def _kafka_process(flow: hf.Flow) -> None:
    totals = _kafka_edits(flow).process("totals", Totals())
    _kafka_totals(flow, totals, "exactly_once")


@kafka_process_repeating.pipeline
def _kafka_process_repeating(flow: hf.Flow) -> None:
    totals = _kafka_edits(flow).process("totals", Totals())
    _kafka_totals(flow, totals, "at_least_once")


@kafka_aggregate.pipeline
def _kafka_aggregate(flow: hf.Flow) -> None:
    from pyspark.sql import functions as f

    totals = _kafka_edits(flow).aggregate("totals", total=f.sum("diff"))
    _kafka_totals(flow, totals, "exactly_once")
