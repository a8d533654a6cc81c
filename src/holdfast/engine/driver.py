"""One attempt of a job in this process: plan, start, wait, stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors.exceptions.base import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoint.identity import (
    JobDirectory,
    JobIdentity,
    check_backend,
    check_parallelism,
    check_sink_position,
    reconciled,
)
from holdfast.checkpoint.record import EpochRecord, EpochStatus
from holdfast.config import RuntimeConfig
from holdfast.engine.entries import silence_missing_keys
from holdfast.engine.epochs import EpochRunner, LatestSizes
from holdfast.engine.failures import explain
from holdfast.engine.planner import StepSettings, plan_trunk
from holdfast.engine.progress import ProgressListener
from holdfast.engine.session import STREAMING, driver_session, query_session
from holdfast.engine.trunk import Trunk
from holdfast.engine.warmup import start_python_workers
from holdfast.engine.writers import writer_for
from holdfast.errors import EnvironmentProblem
from holdfast.guarantees import Guarantee, end_to_end, require
from holdfast.job.graph import JobGraph
from holdfast.job.job import Job

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class StartInfo:
    """What is known once a query has started; shown to the user."""

    identity: JobIdentity
    graph: JobGraph
    guarantee: Guarantee
    resumed: bool
    timings: dict[str, float]
    """Seconds from the start of the attempt to the end of each step."""


@dataclass(frozen=True)
class AttemptRequest:
    job: Job
    runtime: RuntimeConfig
    directory: JobDirectory
    attempt: int
    available_now: bool
    max_epochs: int | None
    stop: threading.Event
    on_start: Callable[[StartInfo], None]
    on_epoch: Callable[[EpochRecord], None]


def run_attempt(request: AttemptRequest) -> bool:
    """Run until the query ends. True: it ended by itself; False: it was asked to stop."""
    job, directory = request.job, request.directory
    timings: dict[str, float] = {}
    began = time.monotonic()

    def note(step: str) -> None:
        timings[step] = round(time.monotonic() - began, 3)

    stored = directory.load()
    if stored is None:
        parallelism = job.resolved_parallelism()
        identity = directory.create(
            parallelism, job.resolved_key_groups(parallelism), job.checkpoint.backend
        )
    else:
        check_parallelism(stored, job.parallelism, job.key_groups)
        check_backend(stored, job.checkpoint.backend)
        identity = stored
    sources: dict[str, Any] = {}
    try:
        log = directory.logs / f"attempt-{request.attempt:05d}.log"
        spark = start_session(request.runtime, log)
        note("jvm")
        start_python_workers(spark, identity.parallelism)
        session = query_session(spark, job.checkpoint, identity.parallelism, request.runtime)
        sizes = spark.sparkContext.accumulator({}, LatestSizes())
        settings = StepSettings(
            identity.job_id,
            uuid.uuid4().hex,
            identity.key_groups,
            job.checkpoint.backend,
            request.runtime.heap_limit_bytes,
            sizes,
            identity.operators,
        )
        trunk = plan_trunk(job, session, settings, directory.path)
        sources = dict(trunk.graph.sources)
        guarantee = end_to_end(trunk.graph.sources, trunk.graph.sinks)
        require(guarantee, job.checkpoint)
        identity = reconciled(
            identity,
            trunk.graph,
            named_sources=trunk.named_sources,
            started_before=(directory.checkpoint / "offsets").exists(),
        )
        directory.save(identity)
        writers = {
            plan.uid: writer_for(
                plan.uid,
                plan.sink,
                job_id=identity.job_id,
                job_name=job.name,
                timeline=identity.timeline,
            )
            for plan in trunk.sinks
        }
        for uid, writer in writers.items():
            writer.open()
            check_sink_position(uid, writer.last_epoch(), directory.last_begun())
        note("plan")
        epochs = _Counter(request)
        runner = EpochRunner(
            job=job,
            trunk=trunk,
            writers=writers,
            sizes=sizes,
            sizes_file=directory.sizes,
            on_begin=epochs.begun,
        )
        listener = ProgressListener(
            attempt=request.attempt,
            checkpoint=directory.checkpoint,
            incremental=job.checkpoint.incremental,
            sources=trunk.reported_sources,
            natives=trunk.reported_natives,
            outcomes=runner.outcomes,
            on_epoch=epochs,
        )
        session.streams.addListener(listener)
        query = _start(session, trunk, runner, request)
        note("query")
        request.on_start(
            StartInfo(identity, trunk.graph, guarantee, stored is not None, timings)
        )
        try:
            ended = _wait(query, request)
        except Exception as error:
            raise runner.error or error from error
        finally:
            _deliver_last_events(spark)
            session.streams.removeListener(listener)
    except Exception as error:
        raise explain(error, sources) from error
    return ended


class _Counter:
    """Passes epochs on, and asks the query to stop after `max_epochs`."""

    def __init__(self, request: AttemptRequest) -> None:
        self._request, self._count = request, 0

    def begun(self, epoch: int) -> None:
        """Leave a trace of an epoch that a crash may cut short."""
        self._request.on_epoch(
            EpochRecord(
                epoch=epoch,
                attempt=self._request.attempt,
                status=EpochStatus.RUNNING,
                started=datetime.now(UTC),
            )
        )

    def __call__(self, record: EpochRecord) -> None:
        self._request.on_epoch(record)
        self._count += 1
        if self._request.max_epochs is not None and self._count >= self._request.max_epochs:
            self._request.stop.set()


def _start(
    session: SparkSession, trunk: Trunk, runner: EpochRunner, request: AttemptRequest
) -> StreamingQuery:
    conf = session.conf
    if trunk.native:
        # Spark's own operators cannot keep their state as Avro.
        conf.set("spark.sql.streaming.stateStore.encodingFormat", "unsaferow")
    conf.set("spark.sql.streaming.useStreamlineAggregator", str(trunk.rolling).lower())
    conf.set(f"{STREAMING}.multipleWatermarkPolicy", request.job.watermark_policy)
    conf.set(f"{STREAMING}.noDataMicroBatches.enabled", str(trunk.moves_without_data).lower())
    interval = request.job.checkpoint.interval_seconds
    writer = (
        trunk.frame.writeStream.outputMode(trunk.output_mode)
        .queryName(request.job.name)
        .option("checkpointLocation", str(request.directory.checkpoint))
        .foreachBatch(runner)
    )
    if request.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds").start()


def _wait(query: StreamingQuery, request: AttemptRequest) -> bool:
    while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
        if request.stop.is_set():
            _drain(query)
            query.stop()
            return False
    return True


def _drain(query: StreamingQuery, patience: float = 60.0) -> None:
    """Let the running epoch finish; one that is cut is repeated at the next start."""
    progress = query.lastProgress
    running = progress["batchId"] if progress else -1
    deadline = time.monotonic() + patience
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        progress = query.lastProgress
        if progress and progress["batchId"] > running:
            return
        time.sleep(_POLL_SECONDS)


def _deliver_last_events(spark: SparkSession) -> None:
    """Spark reports progress asynchronously: wait for what is still on its way."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def start_session(runtime: RuntimeConfig, log: Path) -> SparkSession:
    """Start (or find) the driver's session, with the JVM's chatter in the attempt's log."""
    try:
        with _output_to(log), _own_interrupts():
            session = driver_session(runtime)
            silence_missing_keys(session)
            return session
    except PySparkRuntimeError as error:
        raise EnvironmentProblem(
            "SPARK_DID_NOT_START",
            f"the JVM of Spark did not start: {error}. Its output is in {log}.",
            fix="run `holdfast doctor`; it checks Java, memory and disk.",
        ) from error


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark takes Ctrl-C over when a session starts, to end at once. Take it back."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Let a child process started here write to a file instead of the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, target):
            os.close(descriptor)
