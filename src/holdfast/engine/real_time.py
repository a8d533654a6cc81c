"""Spark's real-time mode: rows are written while an epoch lasts, not at its end.

Spark notes the end of an epoch only when it is over, so one that was cut is not repeated with
the same input: nothing can tell a row that comes again. That leaves at least once, and Spark's
own operators and writer: nothing of ours that runs once per epoch has a place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoint.record import SinkResult
from holdfast.engine.epochs import EpochOutcome
from holdfast.engine.kafka_writer import RepeatingKafkaWriter
from holdfast.engine.trunk import Trunk
from holdfast.engine.writers import SinkWriter
from holdfast.errors import JobDefinitionError
from holdfast.job.job import Job
from holdfast.sinks import Kafka as KafkaSink
from holdfast.sources import Kafka as KafkaSource
from holdfast.storage.kafka import KafkaAdmin

SHORTEST_SECONDS = 5.0
"""Spark's own limit for an epoch of this mode."""


def check_real_time(
    job: Job, trunk: Trunk, session: SparkSession, *, available_now: bool
) -> None:
    """Refuse what Spark would refuse later, do wrongly, or wait for without end."""
    if available_now:
        raise _refused(
            "it never ends by itself, so there is no --available-now.",
            "leave --available-now out, or latency.",
        )
    _check_parts(job, trunk)
    _check_slots(trunk, session, job.resolved_parallelism())


def _check_parts(job: Job, trunk: Trunk) -> None:
    graph = trunk.graph
    if job.checkpoint.mode != "at_least_once":
        raise _refused(
            f"mode is {job.checkpoint.mode!r}. An epoch that was cut is not repeated with the "
            "same input, so nothing can tell a row that comes again.",
            'say CheckpointConfig(mode="at_least_once", latency="real_time"), or leave latency '
            "out.",
        )
    if trunk.steps:
        raise _refused(
            f"step {next(iter(trunk.steps))!r} is a process: Spark's Python state does not "
            "work in this mode (SPARK: STDS_FAILED_TO_READ_OPERATOR_METADATA).",
            "write it with .aggregate, or leave latency out.",
        )
    for uid, source in graph.sources.items():
        if not isinstance(source, KafkaSource):
            raise _refused(
                f"source {uid!r} is {source.describe()}; Spark has this mode for Kafka alone.",
                "read from Kafka, or leave latency out.",
            )
        if source.max_per_epoch is not None or source.on_bad_record == "skip":
            what = "max_per_epoch" if source.max_per_epoch is not None else "on_bad_record"
            raise _refused(
                f"source {uid!r} has {what}, which counts records of an epoch before it is "
                "written.",
                f"leave {what} out.",
            )
    if any(each.idle_after is not None for each in trunk.watched):
        raise _refused(
            "a watermark has idle_after, which needs a clock that this mode cannot read.",
            "leave idle_after out, or latency.",
        )
    if len(trunk.sinks) != 1 or not isinstance(trunk.sinks[0].sink, KafkaSink):
        sinks = ", ".join(f"{uid!r} ({sink.describe()})" for uid, sink in graph.sinks.items())
        raise _refused(
            f"its sinks are {sinks}; Spark writes to one topic of Kafka in this mode.",
            "write to one Kafka sink, or leave latency out.",
        )
    if not trunk.sinks[0].root:
        raise _refused(
            f"between the last stateful step and sink {trunk.sinks[0].uid!r} there is code "
            "that holdfast runs once per epoch.",
            "do it before the step, or leave latency out.",
        )
    if job.checkpoint.interval_seconds < SHORTEST_SECONDS:
        raise _refused(
            f"the interval is {job.checkpoint.interval}; Spark allows no less than "
            f"{SHORTEST_SECONDS:g} s. Rows are written at once all the same.",
            f'say CheckpointConfig(interval="{SHORTEST_SECONDS:g} s", …).',
        )


def _check_slots(trunk: Trunk, session: SparkSession, parallelism: int) -> None:
    """All stages run at the same time; with too few cores Spark waits for ever."""
    needed = sum(map(_partitions, trunk.graph.sources.values()))
    needed += parallelism * len(trunk.positions)
    have = session.sparkContext.defaultParallelism
    if have < needed:
        raise _refused(
            f"it needs {needed} task slots at the same time (each partition of its topics, and "
            f"of each stateful step), and {session.sparkContext.master} has {have}.",
            f'set master = "local[{needed}]", or a lower parallelism; in this mode a slot is '
            "mostly waiting, so there may be more of them than cores.",
        )


def _partitions(source: Any) -> int:
    found = KafkaAdmin(source.access).selected(source.topic_names, source.pattern)
    return sum(map(len, found.values()))


def _refused(why: str, fix: str) -> JobDefinitionError:
    return JobDefinitionError(
        "REAL_TIME_NOT_POSSIBLE", f'the job asks for latency="real_time", but {why}', fix=fix
    )


def start_real_time(
    trunk: Trunk, writers: Mapping[str, SinkWriter], job: Job, checkpoint: Path
) -> StreamingQuery:
    writer = writers[trunk.sinks[0].uid]
    assert isinstance(writer, RepeatingKafkaWriter)
    stream: Any = (  # PySpark's types do not know this trigger
        writer.records(trunk.frame)
        .writeStream.format("kafka")
        .options(**writer.options())
        .outputMode("update")
        .queryName(job.name)
        .option("checkpointLocation", str(checkpoint))
    )
    length = f"{int(job.checkpoint.interval_seconds * 1000)} milliseconds"
    query: StreamingQuery = stream.trigger(realTime=length).start()
    return query


def told_by_progress(trunk: Trunk) -> Callable[[int], EpochOutcome]:
    """The outcome of any epoch: all there is to know is in Spark's own report."""
    sinks = {plan.uid: SinkResult(rows=0, bytes=0) for plan in trunk.sinks}
    return lambda epoch: EpochOutcome(epoch, sinks, {}, {}, 0.0, 0.0, 0.0)
