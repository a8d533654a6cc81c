"""Runs a job in the foreground: loads it, keeps its history, says what happens."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, EpochStatus
from holdfast.clock import SystemClock
from holdfast.config import RuntimeConfig
from holdfast.control.doctor import require_environment
from holdfast.control.history import HistoryWriter
from holdfast.control.registry import Registry
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError, NotFoundError, UsageError, UserCodeError
from holdfast.job.job import Job
from holdfast.state.trouble import user_frame


class Reporter(Protocol):
    """Who is told about a run; the CLI shows it, a library call shows nothing."""

    def started(self, job: Job, attempt: int, info: Any, directory: Path) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...

    def ended(self, state: RunState, error: HoldfastError | None) -> None: ...


class Silent:
    def started(self, job: Job, attempt: int, info: Any, directory: Path) -> None:
        """Say nothing."""

    def epoch(self, record: EpochRecord) -> None:
        """Say nothing."""

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        """Say nothing."""


def load_job(app: Path, job_name: str | None) -> Job:
    """Import the user's file and find its job."""
    if not app.is_file():
        raise NotFoundError(
            "APP_NOT_FOUND", f"there is no file {app}.", fix="give the path of the job's file."
        )
    module = _import_file(app.absolute())
    jobs = {value.name: value for value in vars(module).values() if isinstance(value, Job)}
    if job_name is not None:
        if job_name not in jobs:
            raise NotFoundError(
                "JOB_NOT_IN_FILE",
                f"{app} has no job {job_name!r}.",
                fix=f"it has: {', '.join(jobs) or 'none'}.",
            )
        return jobs[job_name]
    if len(jobs) != 1:
        found = ", ".join(jobs) or "none"
        raise UsageError(
            "JOB_UNCLEAR",
            f"{app} must hold one Job, or --job must name one; found: {found}.",
            fix='write `job = hf.Job("name")` at the top level of the file.'
            if not jobs
            else "say which: --job NAME.",
        )
    return next(iter(jobs.values()))


def _import_file(app: Path) -> ModuleType:
    # The file's directory comes first, so that the job's own modules are found, here and,
    # through PYTHONPATH, in the Python workers.
    folder = str(app.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    spec = importlib.util.spec_from_file_location(app.stem, app)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[app.stem] = module
    try:
        spec.loader.exec_module(module)
    except HoldfastError:
        raise
    except Exception as error:
        place = user_frame(error)
        raise UserCodeError(
            "APP_FAILED_TO_LOAD",
            f"{type(error).__name__}: {error}" + (f" at {place}." if place else "."),
            fix="correct the file; `python FILE` shows the whole traceback.",
            place=place,
        ) from error
    return module


def run_job(
    job: Job,
    *,
    runtime: RuntimeConfig | None = None,
    registry_url: str | None = None,
    available_now: bool = False,
    max_epochs: int | None = None,
    reporter: Reporter | None = None,
) -> RunState:
    """Run one attempt of a job; raises what ended it."""
    job.declared_pipeline  # noqa: B018 - a job without one is refused before anything starts
    if runtime is None or registry_url is None:
        runtime, registry_url = _from_settings()
    reporter = reporter or Silent()
    require_environment()
    clock = SystemClock()
    directory = JobDirectory(runtime.storage, job.name)
    with directory.locked(), Registry(registry_url) as registry:
        registry.ensure_schema()
        row = registry.register_job(job.name, _spec(job, directory))
        attempt = registry.start_attempt(
            row.id,
            os.getpid(),
            socket.gethostname(),
            clock.now(),
            {"master": runtime.master},
            last_committed=directory.last_committed(),
        )
        history = HistoryWriter(registry, row.id)
        stop = threading.Event()

        def on_start(info: Any) -> None:
            registry.set_state(row.id, RunState.RUNNING)
            reporter.started(job, attempt.number, info, directory.path)

        def on_epoch(record: EpochRecord) -> None:
            history.put(record)
            if record.status is EpochStatus.COMMITTED:
                reporter.epoch(record)

        state, failure = RunState.FAILED, None
        try:
            # Imported here: `holdfast checkpoints` must not pay for pyspark.
            from holdfast.engine.driver import AttemptRequest, run_attempt

            with _stop_on_signals(stop):
                ended = run_attempt(
                    AttemptRequest(
                        job, runtime, directory, attempt.number, available_now,
                        max_epochs, stop, on_start, on_epoch,
                    )
                )  # fmt: skip
            state = RunState.FINISHED if ended else RunState.SUSPENDED
        except HoldfastError as error:
            failure = error
            raise
        except KeyboardInterrupt:
            state = RunState.CANCELED
            raise
        finally:
            history.close()
            registry.end_attempt(attempt.id, state, clock.now(), failure)
            reporter.ended(state, failure)
    return state


def _from_settings() -> tuple[RuntimeConfig, str]:
    """For `job.run()`: the same settings that the command line uses."""
    settings = importlib.import_module("holdfast.settings").load_settings().values
    return runtime_config(settings), str(settings.registry_url)


def runtime_config(settings: Any) -> RuntimeConfig:
    return RuntimeConfig(
        storage=settings.storage,
        master=settings.master,
        driver_memory=settings.driver_memory,
        heap_limit=settings.heap_limit,
        rocksdb_memory=settings.rocksdb_memory,
        spark=settings.spark,
    )


def _spec(job: Job, directory: JobDirectory) -> dict[str, Any]:
    return {
        "directory": str(directory.path),
        "checkpoint": {
            name: str(value) if value is not None else None
            for name, value in vars(job.checkpoint).items()
        },
        "restart": repr(job.restart),
        "parallelism": job.parallelism,
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


def run_app(
    app: Path,
    *,
    job_name: str | None,
    available_now: bool,
    parallelism: int | None,
    max_epochs: int | None,
    settings: Any,
    reporter: Reporter,
) -> int:
    """`holdfast run APP.py`."""
    job = load_job(app, job_name)
    if parallelism is not None:
        job.parallelism = parallelism
    run_job(
        job,
        runtime=runtime_config(settings),
        registry_url=str(settings.registry_url),
        available_now=available_now,
        max_epochs=max_epochs,
        reporter=reporter,
    )
    return 0
