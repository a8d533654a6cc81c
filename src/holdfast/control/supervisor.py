"""Supervises one job: starts a driver, watches it, starts the next one, or gives up.

There is at most one supervisor per job, because it holds the job's lease, and at most one
driver, because the next one starts only when all processes of the last are gone. A supervisor
does no Spark; it may be killed at any time, its driver dies with it, and the next one goes on
from the last committed epoch.
"""

from __future__ import annotations

import logging
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.lease import RENEW_SECONDS, Lease
from holdfast.checkpoint.record import (
    EpochRecord,
    EpochStatus,
    JobEvent,
    StartReport,
    parse_time,
)
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.clock import Clock, SystemClock
from holdfast.config import RuntimeConfig
from holdfast.control.app import code_version
from holdfast.control.auto_savepoints import AutoSavepoints
from holdfast.control.driver_handle import DriverHandle, Message
from holdfast.control.driver_process import DriverSpec, plain_runtime
from holdfast.control.history import HistoryWriter
from holdfast.control.hooks import call_hook
from holdfast.control.losses import Losses
from holdfast.control.registry import AttemptRow, JobRow, Registry
from holdfast.control.restore import Planned
from holdfast.control.runner import Reporter, starting_point
from holdfast.control.savepoints import take_savepoint
from holdfast.control.states import RunState
from holdfast.control.training import Training
from holdfast.control.watchdog import (
    HEARTBEAT_TIMEOUT_SECONDS,
    START_TIMEOUT_SECONDS,
    Signs,
    overdue,
)
from holdfast.errors import ConflictError, HoldfastError, RunFailedError
from holdfast.failure import classify
from holdfast.job.job import Job
from holdfast.restart import Failure
from holdfast.savepoint.store import SavepointStore
from holdfast.storage.processes import is_session, kill_session, session_members
from holdfast.types import parse_duration

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_REQUESTS_SECONDS = 0.5
_HANDOVER_SECONDS = 2 * RENEW_SECONDS
STOP_SECONDS = 120.0
"""How long a driver may take to finish its epoch once it was asked to."""

ENDS = {
    "stop": RunState.FINISHED,
    "suspend": RunState.SUSPENDED,
    "cancel": RunState.CANCELED,
}
"""What can be asked of a running job, and how it ends then."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run, and how."""

    app: Path
    job: Job
    runtime: Callable[[], RuntimeConfig]
    """Asked before every attempt: a cluster that came back has another address."""
    storage: Path
    spec: Mapping[str, Any]
    """What the registry is to remember of this start."""
    available_now: bool = False
    parallelism: int | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Of the job, as they were given."""
    max_epochs: int | None = None
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT_SECONDS
    start_timeout: float = START_TIMEOUT_SECONDS
    quiet: bool = False
    """Keep what the job prints out of our standard output; it goes to the attempt's log."""
    savepoints: Path | None = None
    """Where the job's own savepoints go."""
    restore: Planned | None = None
    """Where the job goes on from, if not from its last checkpoint."""
    take_over: bool = False
    """Whether the job is taken away from somebody who runs it."""


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """How an attempt ended."""

    state: RunState
    error: HoldfastError | None = None
    healthy_for: timedelta = timedelta(0)


class Supervisor:
    """Call :meth:`run` once."""

    def __init__(
        self,
        request: RunRequest,
        registry: Registry,
        job: JobRow,
        reporter: Reporter,
        *,
        room: Callable[[], AbstractContextManager[None]] = nullcontext,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`room` refuses a job that the machine has no room for; nobody else takes it before
        the job is ours."""
        self._request, self._registry, self._row, self._room = request, registry, job, room
        self._reporter, self._chance = reporter, chance
        self._clock = clock or SystemClock()
        self._job = request.job
        self._directory = JobDirectory(request.storage, self._job.name)
        self._history = HistoryWriter(registry, job.id)
        self._plan: RestorePlan | None = None
        self._training = Training(request.runtime, self._directory.logs / "training.log")
        self._savepoints = self._auto_savepoints()
        self._wanted: str | None = None
        """Which end has been asked for."""
        self._failures: list[Failure] = []
        self._timeouts = 0
        """Epochs in a row that took too long."""
        self._number: int | None = None
        """Of the attempt that runs, or ran last; None if it could not be started."""
        self._losses = Losses()
        self._next_renewal = self._next_look = 0.0

    def run(self) -> RunState:
        """Until the job ends; raises what made it fail."""
        before = self._directory.lease.read()
        self._left_by_host = before.host if before else None
        with self._room():
            self._lease = self._directory.lease.acquire(
                self._say_waiting, take_over=self._request.take_over
            )
        state, error = RunState.FAILED, None
        try:
            # Not before the job is ours: a start that is refused must not change what is
            # remembered of the one that runs.
            self._quietly(
                lambda: self._registry.register_job(self._job.name, self._request.spec)
            )
            self._note_lease(self._lease)
            if self._request.take_over and before is not None and before.owner:
                self.note("take_over", f"the job was taken away from {before.who}.")
                self._await_end_of_others()
            self._end_leftovers()
            with suppress(HoldfastError):
                self._registry.take_requests(self._row.id)  # meant for an earlier run
            if self._request.restore is not None:
                self._plan = self._request.restore()
                self.note("restore", self._plan.sentence, **self._plan.summary())
            with self._signals():
                state, error = self._run_attempts()
        except ConflictError as lost:
            # Between two attempts.
            error = self._directory.lease.taken_from(self._lease)
            if error is None:
                raise
            logger.debug("lease lost reason=%s", lost.name)
        finally:
            self._training.end()
            if self._savepoints is not None:
                self._savepoints.end()
            self._history.close()
            with suppress(HoldfastError):
                self._directory.lease.release(self._lease)
                self._note_lease(None)
        self._reporter.ended(state, error)
        if error is not None:
            raise error
        return state

    def _auto_savepoints(self) -> AutoSavepoints | None:
        every, root = self._job.checkpoint.savepoint_every, self._request.savepoints
        if every is None or root is None:
            return None
        store = SavepointStore(root)
        return AutoSavepoints(
            self._job.name,
            store,
            every=parse_duration(every),
            kept=self._job.checkpoint.savepoints_kept,
            take=lambda label: take_savepoint(
                self._registry, self._row, store, self._clock, label=label
            ),
            tell=self.note,
            clock=self._clock,
        )

    # Attempts

    def _run_attempts(self) -> tuple[RunState, HoldfastError | None]:
        while True:
            outcome = self._attempt()
            if outcome.error is None:
                self._after_end(outcome.state)
                return outcome.state, None
            if self._directory.lease.taken_from(self._lease) is not None:
                # Nothing to restart, and nothing to tell: the job goes on elsewhere.
                return RunState.FAILED, outcome.error
            delay = self._delay_after(outcome)
            if delay is None:
                return RunState.FAILED, outcome.error
            self._sleep(delay)
            if self._wanted is not None:
                state = ENDS[self._wanted]
                self._set_state(state)
                self._after_end(state)
                return state, None

    def _attempt(self) -> _Outcome:
        request = self._request
        driver = DriverHandle()
        self._number, self._losses = None, Losses()
        try:
            try:
                runtime = request.runtime()
                attempt = self._start_attempt(driver, runtime.master)
                self._number = attempt.number
            except ConflictError:
                raise  # the job is somebody else's now
            except HoldfastError as error:
                # A full disk, a locked registry, no cluster. The strategy knows whether to
                # try again.
                return _Outcome(state=RunState.FAILED, error=error)
            driver.tell(
                DriverSpec(
                    app=str(request.app),
                    job=self._job.declared_name,
                    name=self._job.name,
                    code_version=attempt.info["code"],
                    attempt=attempt.number,
                    fence=self._lease.epoch,
                    runtime=plain_runtime(runtime),
                    parallelism=request.parallelism,
                    arguments=dict(request.arguments),
                    available_now=request.available_now,
                    max_epochs=request.max_epochs,
                    log=str(self._directory.attempt_log(attempt.number)),
                    restore=self._plan_to_do(),
                    quiet=request.quiet,
                )
            )
            outcome = self._watched(driver, attempt)
        finally:
            driver.end()
        self._end_attempt(attempt, outcome)
        return outcome

    def _watched(self, driver: DriverHandle, attempt: AttemptRow) -> _Outcome:
        """How a driver ended. If somebody took the job over, that is why, whatever it was."""
        try:
            outcome = _Watch(self, driver, attempt).until_end()
        except ConflictError as lost:
            outcome = _Outcome(state=RunState.FAILED, error=lost)
        if outcome.error is None:
            return outcome
        return replace(
            outcome, error=self._directory.lease.taken_from(self._lease) or outcome.error
        )

    def _plan_to_do(self) -> dict[str, Any] | None:
        """The restore, until an attempt has carried it out."""
        if self._plan is None or self._plan.is_done(self._directory.load()):
            return None
        return self._plan.to_dict()

    def _start_attempt(self, driver: DriverHandle, master: str) -> AttemptRow:
        # The session is on record before the driver does anything: whoever comes after us
        # knows what has to be gone.
        self._lease = self._directory.lease.next_attempt(self._lease, driver.pid)
        self._note_lease(self._lease)
        return self._registry.start_attempt(
            self._row.id,
            driver.pid,
            socket.gethostname(),
            self._clock.now(),
            {
                "master": master,
                "fence": self._lease.epoch,
                "from": starting_point(self._job, self._directory, self._plan),
                # Read for every attempt: somebody may have mended the file.
                "code": code_version(self._request.app.absolute().parent),
            },
            last_committed=self._directory.last_committed(),
        )

    def _end_attempt(self, attempt: AttemptRow, outcome: _Outcome) -> None:
        self._quietly(
            lambda: self._registry.end_attempt(
                attempt.id,
                outcome.state,
                self._clock.now(),
                outcome.error,
                last_committed=self._directory.last_committed(),
            )
        )

    def _delay_after(self, outcome: _Outcome) -> timedelta | None:
        """How long to wait before the next attempt; None: there is none."""
        error = outcome.error
        assert error is not None
        failure = Failure(
            at=self._clock.now(),
            failure_class=classify(error),
            healthy_for=outcome.healthy_for,
        )
        facts = {"class": failure.failure_class, "error": error.name}
        if self._tolerates(error):
            self.note("restart", f"{error.name} is tolerated; the epoch is repeated.", **facts)
            return timedelta(0)
        self._failures.append(failure)
        decision = self._job.restart.decide(self._failures, chance=self._chance())
        self.note("attempt_failed", f"{failure.failure_class}: {error.message}", **facts)
        if decision.restart:
            seconds = decision.delay.total_seconds()
            text = f"{decision.reason}, in {seconds:.1f} s."
            self.note("restart", text, delay=seconds, **facts)
            self._set_state(RunState.RESTARTING)
            return decision.delay
        self.note("failed", f"no restart: {decision.reason}.", **facts)
        if self._job.on_failed is not None:
            facts |= {"job": self._job.name, "message": error.message, "fix": error.fix}
            self.note("hook", call_hook(self._job.on_failed, facts))
        return None

    def _tolerates(self, error: HoldfastError) -> bool:
        """Epochs that took too long, up to the number in a row that the job allows."""
        if error.name != "EPOCH_TIMEOUT":
            return False
        self._timeouts += 1
        return self._timeouts <= self._job.checkpoint.tolerable_failures

    def _after_end(self, state: RunState) -> None:
        if state is RunState.CANCELED and self._job.checkpoint.on_cancel == "delete":
            self._directory.forget()
            self.note("checkpoint_deleted", "the job was canceled; its state is gone.")

    def _await_end_of_others(self) -> None:
        """Who renews its lease finds out soon that it has none, and ends its driver itself."""
        session, started = self._lease.session, self._lease.session_started
        if session is None or self._left_by_host != socket.gethostname():
            return
        until, pause = self._clock.monotonic() + _HANDOVER_SECONDS, threading.Event()
        while (
            self._clock.monotonic() < until
            and is_session(session, started)
            and session_members(session)
        ):
            pause.wait(_POLL_SECONDS)

    def _end_leftovers(self) -> None:
        """Whatever an earlier supervisor of this machine has left running."""
        session = self._lease.session
        if session is None or self._left_by_host != socket.gethostname():
            return
        if is_session(session, self._lease.session_started):
            kill_session(session)

    # Waiting

    def _sleep(self, delay: timedelta) -> None:
        until = self._clock.monotonic() + delay.total_seconds()
        pause = threading.Event()
        while self._clock.monotonic() < until and self.wanted() is None:
            pause.wait(_POLL_SECONDS)

    def wanted(self) -> str | None:
        """What people want, looked up now and then. Keeps the lease alive as well."""
        now = self._clock.monotonic()
        if now >= self._next_renewal:
            self._next_renewal = now + RENEW_SECONDS
            self._renew_lease()
        if now >= self._next_look:
            self._next_look = now + _REQUESTS_SECONDS
            for kind in self._quietly(lambda: self._registry.take_requests(self._row.id)) or ():
                self.ask(kind)
        return self._wanted

    def _renew_lease(self) -> None:
        try:
            self._lease = self._directory.lease.renew(self._lease)
        except ConflictError:
            raise
        except HoldfastError as error:
            # A full disk. If it lasts, somebody may take the job over; then the fence counts.
            logger.warning("lease not renewed reason=%s", error.name)
        else:
            self._note_lease(self._lease)

    def ask(self, kind: str) -> None:
        if self._wanted is None or kind == "cancel":
            self._wanted = kind
            self.note("request", f"{kind} was asked for.")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM suspend the job; a second one cuts its epoch short."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: Any) -> None:
            self._wanted = "suspend" if self._wanted is None else "cancel"

        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # Telling

    def note(self, kind: str, text: str, **data: Any) -> None:
        at, attempt = self._clock.now(), self._number
        self.happened(JobEvent(at=at, kind=kind, text=text, data=data, attempt=attempt))

    def happened(self, event: JobEvent) -> None:
        self._losses.happened(event)
        self._quietly(lambda: self._registry.add_event(self._row.id, event))
        self._reporter.happened(event)

    def started(self, report: StartReport) -> None:
        self._set_state(RunState.RUNNING)
        self._reporter.started(report)

    def epoch(self, record: EpochRecord) -> None:
        self._history.put(record)
        if record.status is EpochStatus.COMMITTED:
            self._timeouts = 0
            self._reporter.epoch(record)
            if (overcome := self._losses.over(record)) is not None:
                self.happened(overcome)
            if self._savepoints is not None:
                self._savepoints.consider()

    def stopping(self) -> None:
        self._set_state(RunState.STOPPING)

    def healthy(self, seconds: float) -> None:
        """The running attempt has been well for so long."""
        self._training.consider(seconds)

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def epoch_timeout(self) -> float | None:
        timeout = self._job.checkpoint.timeout
        return None if timeout is None else parse_duration(timeout).total_seconds()

    @property
    def heartbeat_timeout(self) -> float:
        return self._request.heartbeat_timeout

    @property
    def start_timeout(self) -> float:
        return self._request.start_timeout

    def _set_state(self, state: RunState) -> None:
        self._quietly(lambda: self._registry.set_state(self._row.id, state))

    def _note_lease(self, lease: Lease | None) -> None:
        shown = None if lease is None else lease.to_dict()
        self._quietly(lambda: self._registry.set_lease(self._row.id, shown))

    def _say_waiting(self, lease: Lease) -> None:
        self._reporter.happened(
            JobEvent(
                at=self._clock.now(),
                kind="lease",
                text=f"the job's lease is held by {lease.who}, which is silent; watching it.",
            )
        )

    def _quietly(self, call: Callable[[], Any]) -> Any:
        """The registry is for people: a job runs on when it is locked, full or gone."""
        try:
            return call()
        except HoldfastError as error:
            logger.warning("registry not reached reason=%s", error.name)
            return None


class _Watch:
    """One driver, from its start to its end."""

    def __init__(
        self, supervisor: Supervisor, driver: DriverHandle, attempt: AttemptRow
    ) -> None:
        self._supervisor, self._driver, self._attempt = supervisor, driver, attempt
        self._now = supervisor.clock.monotonic
        self._signs = Signs(heard=self._now(), starting_since=self._now())
        self._healthy_since: float | None = None
        self._stop_by: float | None = None
        self._last: Message | None = None
        """What the driver said about its end."""

    def until_end(self) -> _Outcome:
        while not self._driver.is_over:
            message = self._driver.next_message(_POLL_SECONDS)
            if message is not None:
                self._hear(message)
            self._supervisor.healthy(self._healthy_for())
            # Judged only when nothing waits to be heard: looking requests up may take long, if
            # the registry is locked, and the driver has spoken meanwhile.
            ended = (self._given_up() if message is None else None) or self._obey()
            if ended is not None:
                return ended
        return self._how_it_ended()

    def _hear(self, message: Message) -> None:
        self._signs = replace(self._signs, heard=self._now())
        match message["kind"]:
            case "started":
                report = dict(message["report"])
                for name in ("weak_links", "never_forget"):
                    report[name] = tuple(report[name])
                self._signs = self._signs.started()
                self._supervisor.started(StartReport(**report))
            case "busy":
                self._signs = self._signs.trigger(message["active"], self._now())
            case "epoch":
                self._note_epoch(EpochRecord.from_dict(message["record"]))
            case "event":
                fields = dict(message["event"])
                fields |= {"at": parse_time(fields["at"]), "attempt": self._attempt.number}
                event = JobEvent(**fields)
                if event.kind == "no_executors":
                    self._signs = self._signs.executors_gone()
                elif event.kind == "executors_back":
                    self._signs = self._signs.executors_back(self._now())
                self._supervisor.happened(event)
            case "ended" | "failed":
                self._last = message

    def _note_epoch(self, record: EpochRecord) -> None:
        if record.status is EpochStatus.RUNNING:
            self._signs = self._signs.epoch_started(record.epoch, self._now())
        else:
            self._signs = self._signs.epoch_ended(record.epoch)
            if self._healthy_since is None:
                self._healthy_since = self._now()
        self._supervisor.epoch(record)

    def _obey(self) -> _Outcome | None:
        wanted = self._supervisor.wanted()
        if wanted == "cancel":
            return _Outcome(state=RunState.CANCELED)
        if wanted is not None and self._stop_by is None:
            self._stop_by = self._now() + STOP_SECONDS
            self._supervisor.stopping()
            self._driver.stop()
        if self._stop_by is not None and self._now() > self._stop_by:
            self._supervisor.note(
                "stop_timeout", "the running epoch did not end in time; it will be repeated."
            )
            return _Outcome(state=ENDS[wanted or "suspend"])
        return None

    def _given_up(self) -> _Outcome | None:
        error = overdue(
            self._signs,
            self._now(),
            epoch_timeout=self._supervisor.epoch_timeout,
            heartbeat_timeout=self._supervisor.heartbeat_timeout,
            start_timeout=self._supervisor.start_timeout,
        )
        return None if error is None else self._failed(error)

    def _how_it_ended(self) -> _Outcome:
        if self._last is None:
            return self._failed(
                RunFailedError(
                    "DRIVER_DIED",
                    f"the driver process ended without a word ({self._driver.how_it_ended()}).",
                    fix="see the attempt's log (`holdfast logs`); kill -9 and the system's "
                    "out-of-memory killer look like this.",
                )
            )
        if self._last["kind"] == "failed":
            fields = self._last["error"]
            return self._failed(HoldfastError.from_fields(fields))
        if self._last["finished"]:
            return _Outcome(state=RunState.FINISHED)
        wanted = self._supervisor.wanted()
        return _Outcome(state=ENDS[wanted] if wanted else RunState.SUSPENDED)

    def _failed(self, error: HoldfastError) -> _Outcome:
        return _Outcome(
            state=RunState.FAILED,
            error=error,
            healthy_for=timedelta(seconds=self._healthy_for()),
        )

    def _healthy_for(self) -> float:
        """Seconds since its first committed epoch."""
        return 0.0 if self._healthy_since is None else self._now() - self._healthy_since
