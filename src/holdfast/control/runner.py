"""A job in this very process: one attempt, no supervisor. What `job.run()` does."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, EpochStatus, JobEvent, StartReport
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.clock import SystemClock
from holdfast.config import RuntimeConfig
from holdfast.control.app import code_version
from holdfast.control.cluster.master import resolve_master
from holdfast.control.doctor import require_environment
from holdfast.control.history import HistoryWriter
from holdfast.control.losses import Losses
from holdfast.control.registry import Registry
from holdfast.control.restore import Planned
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError
from holdfast.job.job import Job


class Reporter(Protocol):
    """Who is told about a run; the CLI shows it, a library call shows nothing."""

    def started(self, start: StartReport) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...

    def happened(self, event: JobEvent) -> None: ...

    def ended(self, state: RunState, error: HoldfastError | None) -> None: ...


class Silent:
    def started(self, start: StartReport) -> None:
        """Say nothing."""

    def epoch(self, record: EpochRecord) -> None:
        """Say nothing."""

    def happened(self, event: JobEvent) -> None:
        """Say nothing."""

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        """Say nothing."""


def run_job(
    job: Job,
    *,
    runtime: RuntimeConfig | None = None,
    registry_url: str | None = None,
    available_now: bool = False,
    max_epochs: int | None = None,
    reporter: Reporter | None = None,
    app_folder: Path | None = None,
    restore: Planned | None = None,
) -> RunState:
    """Run one attempt of a job; raises what ended it."""
    job.declared_pipeline  # noqa: B018 - a job without one is refused before anything starts
    if runtime is None or registry_url is None:
        runtime, registry_url = _from_settings()
    reporter = reporter or Silent()
    require_environment()
    clock = SystemClock()
    directory = JobDirectory(runtime.storage, job.name)
    with directory.locked() as lease, Registry(registry_url) as registry:
        registry.ensure_schema()
        row = registry.register_job(job.name, job_spec(job, directory))
        plan = None if restore is None else restore()
        code = code_version(app_folder)
        attempt = registry.start_attempt(
            row.id,
            os.getpid(),
            socket.gethostname(),
            clock.now(),
            {
                "master": runtime.master,
                "from": starting_point(job, directory, plan),
                "code": code,
            },
            last_committed=directory.last_committed(),
        )
        history = HistoryWriter(registry, row.id)
        stop, losses = threading.Event(), Losses()

        def on_start(start: StartReport) -> None:
            registry.set_state(row.id, RunState.RUNNING)
            reporter.started(start)

        def on_epoch(record: EpochRecord) -> None:
            history.put(record)
            if record.status is EpochStatus.COMMITTED:
                reporter.epoch(record)
            if (overcome := losses.over(record)) is not None:
                on_event(overcome)

        def on_event(event: JobEvent) -> None:
            losses.happened(event)
            registry.add_event(row.id, event)
            reporter.happened(event)

        state, failure = RunState.FAILED, None
        try:
            # Imported here: `holdfast checkpoints` must not pay for pyspark.
            from holdfast.engine.driver import AttemptRequest, run_attempt

            with _stop_on_signals(stop):
                ended = run_attempt(
                    AttemptRequest(
                        job,
                        runtime,
                        directory,
                        attempt.number,
                        lease.epoch,
                        available_now=available_now,
                        max_epochs=max_epochs,
                        stop=stop,
                        on_start=on_start,
                        on_epoch=on_epoch,
                        on_event=on_event,
                        app_folder=app_folder,
                        code_version=code,
                        restore=plan,
                    )
                )
            state = RunState.FINISHED if ended else RunState.SUSPENDED
        except HoldfastError as error:
            failure = error
            raise
        except KeyboardInterrupt:
            state = RunState.CANCELED
            raise
        finally:
            history.close()
            registry.end_attempt(
                attempt.id,
                state,
                clock.now(),
                failure,
                last_committed=directory.last_committed(),
            )
            reporter.ended(state, failure)
    return state


def _from_settings() -> tuple[RuntimeConfig, str]:
    """For `job.run()`: the same settings that the command line uses."""
    settings = importlib.import_module("holdfast.settings").load_settings().values
    return runtime_config(settings), str(settings.registry_url)


def runtime_config(settings: Any) -> RuntimeConfig:
    master = resolve_master(settings.master, settings.home)
    return RuntimeConfig(
        storage=settings.storage,
        master=master.url,
        conf_dir=master.conf_dir,
        driver_memory=settings.driver_memory,
        heap_limit=settings.heap_limit,
        rocksdb_memory=settings.rocksdb_memory,
        cache=str(settings.home / "cache") if settings.fast_start else None,
        kafka_packages=settings.kafka_packages,
        kafka_jars=settings.kafka_jars,
        spark=settings.spark,
    )


def starting_point(job: Job, directory: JobDirectory, plan: RestorePlan | None = None) -> str:
    """Where an attempt goes on from, for the history."""
    if plan is not None and not plan.is_done(directory.load()):
        anew = f", source {', '.join(plan.reset_sources)} anew" if plan.reset_sources else ""
        return f"{plan.point}{anew}"
    last = directory.last_committed()
    return "nothing" if job.checkpoint.mode == "none" or last is None else f"epoch {last}"


def job_spec(job: Job, directory: JobDirectory, **how: Any) -> dict[str, Any]:
    """What the registry keeps of a job's declaration; `how` it was started."""
    return {
        "directory": str(directory.path),
        "checkpoint": {
            name: str(value) if value is not None else None
            for name, value in vars(job.checkpoint).items()
        },
        "restart": repr(job.restart),
        "parallelism": job.parallelism,
        "arguments": dict(job.arguments),
        **how,
    }


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM let the running epoch finish; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
