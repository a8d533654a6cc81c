"""One attempt of a job in this process: plan, start, wait, stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors.exceptions.base import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoint.compatibility import (
    Code,
    adopted,
    check_backend,
    check_parallelism,
    check_resume,
    check_sink_position,
)
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import EpochRecord, EpochStatus, JobEvent, StartReport
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import lineage
from holdfast.config import RuntimeConfig
from holdfast.engine.connectors import PACKAGES, equipped, not_resolved
from holdfast.engine.entries import silence_missing_keys
from holdfast.engine.epochs import EpochRunner, LatestSizes
from holdfast.engine.executors import watch_executors
from holdfast.engine.failures import explain
from holdfast.engine.group_offsets import GroupOffsets
from holdfast.engine.idle import NOTES, IdleNotes
from holdfast.engine.jvm import KnownJvm
from holdfast.engine.kafka_start import check_kafka
from holdfast.engine.modules import ship_modules
from holdfast.engine.planner import StepSettings, plan_trunk
from holdfast.engine.progress import ProgressListener
from holdfast.engine.real_time import check_real_time, start_real_time, told_by_progress
from holdfast.engine.restoring import Restore
from holdfast.engine.session import begin_jvm, configure, driver_session, query_session
from holdfast.engine.trunk import Trunk
from holdfast.engine.warmup import PythonWorkers
from holdfast.engine.writers import SinkWriter, writer_for
from holdfast.errors import ConflictError, EnvironmentProblem, HoldfastError
from holdfast.guarantees import Guarantee, end_to_end, require
from holdfast.job.graph import JobGraph
from holdfast.job.job import Job
from holdfast.storage.files import make_directory
from holdfast.storage.known_secrets import hidden_in_files

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class AttemptRequest:
    job: Job
    runtime: RuntimeConfig
    directory: JobDirectory
    attempt: int
    fence: int
    """The lease's number: sinks refuse whoever comes with a smaller one."""
    available_now: bool
    max_epochs: int | None
    stop: threading.Event
    on_start: Callable[[StartReport], None]
    on_epoch: Callable[[EpochRecord], None]
    on_event: Callable[[JobEvent], None]
    app_folder: Path | None = None
    """Where the job's file lies; its modules are sent to executors."""
    code_version: str = ""
    restore: RestorePlan | None = None
    """Where to go on from, if not from the job's last checkpoint."""
    jvm: KnownJvm | None = None
    """On its way already, if the driver is in a hurry."""
    on_busy: Callable[[bool], None] = lambda active: None
    """Told every second whether an epoch is at work, also before its rows are."""


def run_attempt(request: AttemptRequest) -> bool:
    """Run until the query ends. True: it ended by itself; False: it was asked to stop."""
    # The attempt before may have been killed before it could look into its own log.
    numbers = (request.attempt, request.attempt - 1)
    with hidden_in_files([request.directory.attempt_log(number) for number in numbers]):
        return _run_attempt(request)


def _run_attempt(request: AttemptRequest) -> bool:
    job, directory = request.job, request.directory
    timings, began = dict[str, float](), time.monotonic()

    def note(step: str) -> None:
        timings[step] = round(time.monotonic() - began, 3)

    identity, resumed = _identity(request)
    sources: dict[str, Any] = {}
    over = ExitStack()
    try:
        log = directory.attempt_log(request.attempt)
        spark = start_session(equipped(request.runtime, job), log, request.jvm)
        note("jvm")
        if request.app_folder is not None:
            ship_modules(spark, request.app_folder)
        over.callback(watch_executors(spark, request.on_event))
        # Real-time mode has no use for them, and needs the slots that they start on.
        workers = PythonWorkers(spark, 0 if job.is_real_time else identity.parallelism)
        session = query_session(spark, job.checkpoint, identity.parallelism, request.runtime)
        settings = step_settings(job, spark, identity, request.runtime)
        trunk = plan_trunk(job, session, settings, directory.path)
        sources = dict(trunk.graph.sources)
        guarantee = _possible_guarantee(request, trunk, spark)
        idle = _idle_notes(request, trunk, settings.run_id, resumed=resumed)
        note("plan")
        identity = _adopted(request, identity, trunk, session, settings)
        writers = _open_sinks(request, trunk, identity)
        note("restore" if request.restore else "sinks")
        check_kafka(
            sources,
            checkpoint=directory.checkpoint,
            last=directory.last_committed(),
            reported=trunk.reported_sources,
            named=trunk.named_sources,
            on_event=request.on_event,
        )
        groups = GroupOffsets(job.name, sources, request.on_event)
        over.callback(groups.close)
        epochs = _Counter(request, groups)
        runner = EpochRunner(
            job=job,
            trunk=trunk,
            writers=writers,
            sizes=settings.sizes,
            sizes_log=directory.sizes,
            known_sizes=directory.sizes.load(directory.last_committed()),
            on_begin=epochs.begun,
            await_workers=workers.wait,
        )
        listener = ProgressListener(
            attempt=request.attempt,
            checkpoint=directory.checkpoint,
            incremental=job.checkpoint.incremental,
            sources=trunk.reported_sources,
            natives=trunk.reported_natives,
            positions=trunk.positions,
            outcome_of=told_by_progress(trunk) if job.is_real_time else runner.take_outcome,
            idle=idle,
            on_entries=directory.sizes.note_entries,
            on_epoch=epochs,
        )
        session.streams.addListener(listener)
        configure(session, job, trunk)
        query = (
            start_real_time(trunk, writers, job, directory.checkpoint)
            if job.is_real_time
            else _start(trunk, runner, request)
        )
        note("query")
        request.on_start(
            _report(
                request,
                identity=identity,
                graph=trunk.graph,
                guarantee=guarantee,
                resumed=resumed,
                timings=timings,
            )
        )
        try:
            ended = _wait(query, request)
        except Exception as error:
            raise runner.error or error from error
        finally:
            _deliver_last_events(spark)
            session.streams.removeListener(listener)
    except Exception as error:
        raise _unless_replaced(request, explain(error, sources)) from error
    finally:
        over.close()
    return ended


def _possible_guarantee(
    request: AttemptRequest, trunk: Trunk, session: SparkSession
) -> Guarantee:
    """What the job guarantees; refuses one that asks for more than its parts can give."""
    job = request.job
    guarantee = end_to_end(trunk.graph.sources, trunk.graph.sinks, job.checkpoint)
    require(guarantee, job.checkpoint)
    if job.is_real_time:
        check_real_time(job, trunk, session, available_now=request.available_now)
    return guarantee


def _idle_notes(
    request: AttemptRequest, trunk: Trunk, run_id: str, *, resumed: bool
) -> IdleNotes:
    """What is known of idle sources; nothing, for a job that does not go on where it was."""
    notes = request.directory.path / NOTES
    if not resumed or request.restore is not None:
        notes.unlink(missing_ok=True)
    # With "max" nobody is waited for.
    watched = trunk.watched if request.job.watermark_policy == "min" else ()
    return IdleNotes(notes, run_id, watched)


def _unless_replaced(request: AttemptRequest, error: HoldfastError) -> HoldfastError:
    """What ended an attempt that somebody has taken over from means nothing by itself.

    It finds log entries that it has not written, and misses state that was cleaned up.
    """
    with suppress(HoldfastError):
        if request.directory.lease.is_past(request.fence):
            return ConflictError(
                "FENCED",
                f"another run of job {request.job.name!r} has taken over; this one, attempt "
                f"{request.attempt}, has ended with {error.name}: {error.message}",
                fix="nothing: the other run goes on. No row is lost or doubled.",
            )
    return error


def _identity(request: AttemptRequest) -> tuple[JobIdentity, bool]:
    """Who the job is, and whether it goes on from a checkpoint."""
    job, directory = request.job, request.directory
    if request.restore is not None:
        check_parallelism(request.restore.identity, None, job.key_groups)
        make_directory(directory.logs)
        return request.restore.identity, True
    from_scratch = job.checkpoint.mode == "none"
    stored = None if from_scratch else directory.load()
    if stored is not None:
        check_parallelism(stored, job.parallelism, job.key_groups)
        check_backend(stored, job.checkpoint.backend)
        return stored, True
    parallelism = job.resolved_parallelism()
    key_groups = job.resolved_key_groups(parallelism)
    if from_scratch:
        with directory.lease.not_past(request.fence):
            directory.discard_state()
    identity = directory.create(parallelism, key_groups, job.checkpoint.backend)
    if from_scratch:
        # A timeline of its own: what earlier attempts have written stays, and is written again.
        identity = replace(identity, timeline=f"a{request.attempt}")
    return identity, False


def _adopted(
    request: AttemptRequest,
    identity: JobIdentity,
    trunk: Trunk,
    session: SparkSession,
    settings: StepSettings,
) -> JobIdentity:
    """The state that the job goes on with, once it is clear that it fits the code."""
    directory, plan = request.directory, request.restore
    code = replace(code_of(request.job, trunk), version=request.code_version)
    if plan is not None:
        return Restore(
            plan=plan,
            code=code,
            job=request.job,
            directory=directory,
            fence=request.fence,
            session=session,
            settings=settings,
        ).carry_out()
    if (directory.checkpoint / "offsets").exists():
        check_resume(identity, code)
    identity = adopted(identity, code)
    with directory.lease.not_past(request.fence):
        directory.save(identity)
    return identity


def step_settings(
    job: Job, spark: SparkSession, identity: JobIdentity, runtime: RuntimeConfig
) -> StepSettings:
    return StepSettings(
        identity.job_id,
        uuid.uuid4().hex,
        identity.key_groups,
        job.checkpoint.backend,
        runtime.heap_limit_bytes,
        spark.sparkContext.accumulator({}, LatestSizes()),
        identity.operators,
    )


def code_of(job: Job, trunk: Trunk) -> Code:
    return Code(
        graph=trunk.graph,
        named_sources=trunk.named_sources,
        positions=trunk.positions,
        backend=job.checkpoint.backend,
    )


def declared_code(
    job: Job,
    identity: JobIdentity,
    directory: JobDirectory,
    runtime: RuntimeConfig,
    log: Path,
) -> Code:
    """What the code of a job declares. Starts Spark, but no query."""
    spark = start_session(equipped(runtime, job), log)
    session = query_session(spark, job.checkpoint, identity.parallelism, runtime)
    settings = step_settings(job, spark, identity, runtime)
    return code_of(job, plan_trunk(job, session, settings, directory.path))


def _open_sinks(
    request: AttemptRequest, trunk: Trunk, identity: JobIdentity
) -> dict[str, SinkWriter]:
    """The sinks, put right after a crash, and without what a restore has left behind it."""
    writers = {}
    for plan in trunk.sinks:
        writer = writer_for(
            plan.uid,
            plan.sink.with_suffix(identity.output_suffix),
            identity,
            fence=request.fence,
            directory=request.directory.path,
        )
        writer.open()
        kept = lineage(identity.timelines, identity.timeline)
        if identity.rewind_pending:
            writer.rewind(kept)
        if identity.adoption is not None:
            writer.adopt(identity.adoption, kept)
        check_sink_position(plan.uid, writer.last_epoch(), request.directory.last_begun())
        writers[plan.uid] = writer
    if identity.rewind_pending or identity.adoption is not None:
        with request.directory.lease.not_past(request.fence):
            request.directory.save(replace(identity, rewind_pending=False, adoption=None))
    return writers


def _report(
    request: AttemptRequest,
    *,
    identity: JobIdentity,
    graph: JobGraph,
    guarantee: Guarantee,
    resumed: bool,
    timings: dict[str, float],
) -> StartReport:
    checkpoint = request.job.checkpoint
    return StartReport(
        job=request.job.name,
        attempt=request.attempt,
        resumed=resumed,
        origin="" if request.restore is None else request.restore.point,
        guarantee=guarantee.level,
        weak_links=guarantee.weak_links,
        parallelism=identity.parallelism,
        key_groups=identity.key_groups,
        backend=checkpoint.backend,
        interval=str(checkpoint.interval),
        sources={uid: source.describe() for uid, source in graph.sources.items()},
        sinks={
            uid: f"{sink.with_suffix(identity.output_suffix).describe()}, {sink.delivery}"
            for uid, sink in graph.sinks.items()
        },
        never_forget=tuple(uid for uid, step in graph.steps.items() if not step.forgets),
        directory=str(request.directory.path),
        timings=timings,
    )


class _Counter:
    """Passes epochs on, and asks the query to stop after `max_epochs`."""

    def __init__(self, request: AttemptRequest, groups: GroupOffsets) -> None:
        self._request, self._groups, self._count = request, groups, 0

    def begun(self, epoch: int) -> None:
        """Leave a trace of an epoch that a crash may cut short. Whoever has been replaced
        begins none."""
        _require_not_replaced(self._request)
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
        self._groups.put(record)
        self._count += 1
        if self._request.max_epochs is not None and self._count >= self._request.max_epochs:
            self._request.stop.set()


def _require_not_replaced(request: AttemptRequest) -> None:
    try:
        request.directory.lease.require_not_past(request.fence)
    except ConflictError:
        raise
    except HoldfastError as error:
        # A lease that cannot be read is no reason to end; the fence in the sinks remains.
        logger.warning("lease not read reason=%s", error.name)


def _start(trunk: Trunk, runner: EpochRunner, request: AttemptRequest) -> StreamingQuery:
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
    next_report = 0.0
    while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + _REPORT_SECONDS
            request.on_busy(bool(query.status["isTriggerActive"]))
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


def _end_of(log: Path, size: int = 50_000) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - size))
        return file.read().decode("utf-8", "replace")


def start_session(
    runtime: RuntimeConfig, log: Path, jvm: KnownJvm | None = None
) -> SparkSession:
    """Start (or find) the driver's session, with the JVM's chatter in the attempt's log."""
    try:
        with _output_to(log), _own_interrupts():
            if jvm is None and SparkContext._gateway is None:
                jvm = begin_jvm(runtime, log)
            session = driver_session(runtime, jvm)
            silence_missing_keys(session)
            return session
    except PySparkRuntimeError as error:
        packages = str(runtime.spark.get(PACKAGES, ""))
        if packages and (problem := not_resolved(packages, _end_of(log))) is not None:
            raise problem from error
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
