"""Starting a supervised job: here, or in a process that outlives the terminal."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, chdir, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.clock import SystemClock
from holdfast.control.app import load_job
from holdfast.control.doctor import require_environment
from holdfast.control.fork_plans import is_carried_out, is_of_another_job, plan_start
from holdfast.control.registry import JobRow, Registry
from holdfast.control.restore import Planned
from holdfast.control.runner import Reporter, job_spec, run_job, runtime_config
from holdfast.control.session import WITHOUT_BUDGET, claim_of, room_for
from holdfast.control.states import RunState
from holdfast.control.supervisor import RunRequest, Supervisor
from holdfast.control.surroundings import passed_on
from holdfast.errors import HoldfastError, NotFoundError, RunFailedError, UsageError
from holdfast.job.job import Job
from holdfast.savepoint.store import SavepointStore
from holdfast.types import check_name

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_DETACH_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What `holdfast run` was told, and what `holdfast resume` repeats."""

    app: Path
    job_name: str | None = None
    """Which job of the file."""
    name: str | None = None
    """What it runs under, if not what the file calls it."""
    available_now: bool = False
    parallelism: int | None = None
    job_arguments: Mapping[str, str] = field(default_factory=dict)
    """As given, by name; see :class:`holdfast.job.arguments.Arguments`."""
    max_epochs: int | None = None
    start_from: str | None = None
    """An older point to go back to first; `resume` does not repeat it, unless it is a fork or
    a promotion that was not carried out."""
    sink_choice: SinkChoice | None = None
    allow_dropped: bool = False
    """Whether state that the code has no place for may be left behind."""
    reset_sources: tuple[str, ...] = ()
    """Sources that do not go on where they were; never repeated."""
    claim: bool = False
    """Whether the savepoint goes to the job, and is gone afterwards."""
    take_over: bool = False
    """Whether the job is taken away from somebody who runs it; never repeated."""
    directory: Path = field(default_factory=Path.cwd)
    """The working directory: relative paths of sources and sinks start there."""

    def to_dict(self) -> dict[str, Any]:
        """What `resume` needs."""
        once = {"start_from": None, "sink_choice": None, "allow_dropped": False, "claim": False}
        lasting = {} if is_of_another_job(self.start_from) else once
        paths = {"app": str(self.app.absolute()), "directory": str(self.directory)}
        never = {"take_over": False, "reset_sources": ()}
        return {**asdict(self), **paths, **lasting, **never}

    @classmethod
    def from_spec(cls, name: str, spec: Mapping[str, Any]) -> Launch:
        """How a job of the registry was last started."""
        stored = spec.get("launch")
        if stored is None:
            raise NotFoundError(
                "LAUNCH_UNKNOWN",
                f"the registry does not know how job {name!r} was started.",
                fix="start it with `holdfast run APP.py`; it goes on from its last checkpoint.",
            )
        paths = {key: Path(stored[key]) for key in ("app", "directory") if key in stored}
        found = cls(**{**stored, **paths})
        if is_carried_out(found.start_from, JobDirectory.at(Path(spec["directory"]))):
            return replace(found, start_from=None, sink_choice=None, allow_dropped=False)
        return found

    def load(self) -> Job:
        """The job, as it is to be run."""
        with self.in_directory():
            job = load_job(self.app, self.job_name)
        if self.name is not None:
            job.name = check_name(self.name, "job name")
        if self.parallelism is not None:
            job.parallelism = self.parallelism
        job.arguments = job.arguments.told(self.job_arguments)
        return job

    def with_code(self, app: Path) -> Launch:
        """The same with other code, which is told what it knows of."""
        new = replace(self, app=app.absolute())
        if not self.job_arguments:
            return new  # the file need not be imported for that
        known = replace(new, job_arguments={}).load().arguments.known_of(self.job_arguments)
        return replace(new, job_arguments=known)

    @contextmanager
    def in_directory(self) -> Iterator[None]:
        """Where paths mean what they meant at the first start, wherever a command is typed."""
        if not self.directory.is_dir():
            raise NotFoundError(
                "WORKING_DIRECTORY_GONE",
                f"{self.directory}, the directory that the job was started in, is gone; "
                "relative paths of its sources and sinks start there.",
                fix="bring the directory back; or start the job where its files are now, with "
                f"`holdfast run {self.app}`: it goes on from its last checkpoint.",
            )
        with chdir(self.directory):
            yield

    def arguments(self) -> list[str]:
        """For `holdfast run`, in `directory`."""
        options = [str(self.app.absolute())]
        if self.job_name is not None:
            options += ["--job", self.job_name]
        for flag, given in (
            ("--available-now", self.available_now),
            ("--allow-non-restored-state", self.allow_dropped),
            ("--claim", self.claim),
            ("--take-over", self.take_over),
        ):
            if given:
                options.append(flag)
        for name, value in (
            ("name", self.name),
            ("parallelism", self.parallelism),
            ("max-epochs", self.max_epochs),
            ("from", self.start_from),
            ("sink", self.sink_choice),
        ):
            if value is not None:
                options += [f"--{name}", str(value)]
        for uid in self.reset_sources:
            options += ["--reset-source", uid]
        for name, value in self.job_arguments.items():
            options += ["--arg", f"{name}={value}"]
        return options

    def restore(self, job: Job, settings: Any) -> Planned | None:
        """Makes the plan that takes the job back, if that was asked for."""
        if self.start_from is None:
            self._refuse_a_reset()
            return None
        directory = JobDirectory(settings.storage, job.name)
        savepoints = SavepointStore(settings.savepoints)
        if is_carried_out(self.start_from, directory):
            return None

        def plan() -> RestorePlan:
            with self.in_directory():
                found = plan_start(
                    job,
                    directory,
                    str(self.start_from),
                    savepoints,
                    choice=self.sink_choice,
                    parallelism=job.parallelism,
                    allow_dropped=self.allow_dropped,
                    claim=self.claim,
                    clock=SystemClock(),
                )
            return replace(found, reset_sources=self.reset_sources)

        return plan

    def _refuse_a_reset(self) -> None:
        if self.reset_sources:
            raise UsageError(
                "NOTHING_TO_RESET",
                "--reset-source is for a job that goes on from a point that --from names.",
                fix="say which: --from checkpoint:N (`holdfast checkpoints` lists them), or "
                "--from SAVEPOINT.",
            )


def run_supervised(
    launch: Launch, settings: Any, reporter: Reporter, *, quiet: bool = False
) -> RunState:
    """Until the job ends; raises what made it fail."""
    job = launch.load()
    job.declared_pipeline  # noqa: B018 - a job without one is refused before anything starts
    require_environment()
    runtime_config(settings)  # a cluster that is not there is refused at once
    directory = JobDirectory(settings.storage, job.name)
    request = RunRequest(
        app=launch.app.absolute(),
        job=job,
        runtime=partial(runtime_config, settings),
        storage=settings.storage,
        spec=job_spec(job, directory, launch=launch.to_dict()),
        savepoints=settings.savepoints,
        available_now=launch.available_now,
        parallelism=launch.parallelism,
        arguments=launch.job_arguments,
        max_epochs=launch.max_epochs,
        heartbeat_timeout=settings.heartbeat_timeout,
        start_timeout=settings.start_timeout,
        quiet=quiet,
        restore=launch.restore(job, settings),
        take_over=launch.take_over,
    )
    with launch.in_directory(), Registry(str(settings.registry_url)) as registry:
        registry.ensure_schema()
        row = registry.register_job(job.name, request.spec, keep_spec=True)
        room = partial(_room, registry, row, request.spec, settings)
        with _metrics(settings, job.name):
            return Supervisor(request, registry, row, reporter, room=room).run()


def _room(
    registry: Registry, row: JobRow, spec: Mapping[str, Any], settings: Any
) -> AbstractContextManager[None]:
    return room_for(registry, claim_of(replace(row, spec=spec), settings), settings)


@contextmanager
def _metrics(settings: Any, job: str) -> Iterator[None]:
    """The job's metrics on a port of its own, which Prometheus finds by a file.

    No metrics are no reason not to run a job.
    """
    from holdfast.metrics.server import MetricsServer
    from holdfast.metrics.targets import remove_target, write_target

    folder = settings.home / "metrics"
    server = MetricsServer(str(settings.registry_url), job=job)
    try:
        server.start()
        write_target(folder, job, server.port)
    except HoldfastError as error:
        logger.warning("metrics are not served reason=%s", error.name)
    try:
        yield
    finally:
        with suppress(HoldfastError):
            remove_target(folder, job)
        server.stop()


def run_unsupervised(launch: Launch, settings: Any, reporter: Reporter) -> RunState:
    """One attempt, in this very process: for debuggers."""
    if launch.take_over:
        raise UsageError(
            "TAKE_OVER_UNSUPERVISED",
            "--take-over needs a supervisor, which ends what the other run has left.",
            fix="leave --unsupervised out, or stop the other run first.",
        )
    job = launch.load()
    runtime = runtime_config(settings)
    spec = job_spec(job, JobDirectory(settings.storage, job.name), launch=launch.to_dict())
    with Registry(str(settings.registry_url)) as registry:
        registry.ensure_schema()
        row = registry.register_job(job.name, spec, keep_spec=True)
        with _room(registry, row, spec, settings):
            pass  # not held until the job runs: a debugger may stop it anywhere
    return run_job(
        job,
        runtime=runtime,
        restore=launch.restore(job, settings),
        registry_url=str(settings.registry_url),
        available_now=launch.available_now,
        max_epochs=launch.max_epochs,
        reporter=reporter,
        app_folder=launch.app.absolute().parent,
    )


@dataclass(frozen=True, kw_only=True)
class Detached:
    job: str
    pid: int
    attempt: int
    log: str


def restart_detached(launch: Launch, settings: Any) -> Detached:
    """Of a job that was stopped for a moment: it gets back the room that it had."""
    return run_detached(launch, settings, master=None, has_room=True)


def run_detached(
    launch: Launch, settings: Any, *, master: str | None, has_room: bool = False
) -> Detached:
    """Have a supervisor of its own run the job; returns once the job runs."""
    job = launch.load()
    directory = JobDirectory(settings.storage, job.name)
    log = directory.logs / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Registry(str(settings.registry_url)) as registry:
        registry.ensure_schema()
        before = _attempts(registry, job.name)
        begins = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            options = ["--home", str(settings.home), *(("--master", master) if master else ())]
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "holdfast.cli.main", "run"),
                    *(*launch.arguments(), *options, "--json"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a line per epoch for months; the registry has them
                stderr=output,
                start_new_session=True,
                cwd=launch.directory,
                env=os.environ | places(settings) | (WITHOUT_BUDGET if has_room else {}),
            )
        deadline = time.monotonic() + _DETACH_SECONDS
        while time.monotonic() < deadline:
            number = _attempts(registry, job.name)
            code = process.poll()
            if code not in (None, 0):
                raise _last_error(log, begins, code)
            if number > before and (code == 0 or _runs(registry, job.name)):
                return Detached(job=job.name, pid=process.pid, attempt=number, log=str(log))
            time.sleep(_POLL_SECONDS)
    raise RunFailedError(
        "START_SLOW",
        f"job {job.name!r} is not running after {_DETACH_SECONDS:g} s; its supervisor, process "
        f"{process.pid}, goes on trying.",
        fix=f"`holdfast ps` and `holdfast logs {job.name}` show how far it is.",
    )


def places(settings: Any) -> dict[str, str]:
    """A settings file in the job's working directory must not send it elsewhere."""
    return {
        "HOLDFAST_STORAGE": str(settings.storage),
        "HOLDFAST_SAVEPOINTS": str(settings.savepoints),
        "HOLDFAST_REGISTRY_URL": str(settings.registry_url),
    }


def of_server(settings: Any) -> dict[str, str]:
    """The environment of a process that the server starts, and of all that comes from it."""
    return passed_on(os.environ, settings.server_pass_environment) | places(settings)


def _attempts(registry: Registry, job: str) -> int:
    try:
        return max((row.number for row in registry.attempts(registry.job(job).id)), default=0)
    except NotFoundError:
        return 0


def _runs(registry: Registry, job: str) -> bool:
    """Not if it has ended: its supervisor, which calls a hook perhaps, will say how."""
    state = registry.job(job).state
    return state.is_active and state is not RunState.STARTING


def _last_error(log: Path, begins: int, code: int | None) -> HoldfastError:
    """What the supervisor said before it ended."""
    with log.open("rb") as file:
        file.seek(begins)
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        try:
            return HoldfastError.from_fields(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue
    return RunFailedError(
        "SUPERVISOR_DIED",
        f"the supervisor ended with exit code {code}.",
        fix=f"look into {log}.",
    )
