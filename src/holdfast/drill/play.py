"""Carries one drill out: the job runs, the fault strikes, the job comes back and is stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.lease import LEASE_SECONDS
from holdfast.demo.proof import Proof, prove
from holdfast.drill.crash_points import CrashPoint, build_library
from holdfast.drill.drills import Drill
from holdfast.drill.edits import Edits
from holdfast.drill.job import TIMEOUT_VARIABLE
from holdfast.drill.on_cluster import cluster_for, executor_of, for_executors, is_java
from holdfast.drill.operation_drills import OperationDrill
from holdfast.drill.subject import JOB, JOB_FILE, Process, Subject
from holdfast.drill.verdict import Seen, SeenAttempt
from holdfast.drill.visible import half_visible
from holdfast.drill.waiting import wait
from holdfast.errors import HoldfastError, RunFailedError
from holdfast.storage.processes import parent_of, session_members

_SEGMENT = 60
_BACKLOG, _LATER = 10, 4
"""Segments before the job starts, and when it has come back; an epoch takes two."""
_EPOCH_TIMEOUT = "20 s"
"""For epochs that do not end."""
HEARTBEAT = "10 s"
"""For drivers that are stopped: short, because the drill waits for it to pass."""


def play(drill: Drill, directory: Path) -> Seen:
    """What was seen of it. No process is left behind, whatever happens."""
    with Subject(directory) as subject, place_to_run(drill, subject):
        return _EpochPlay(drill, subject).until_end()


def place_to_run(
    drill: Drill | OperationDrill, subject: Subject
) -> AbstractContextManager[None]:
    return cluster_for(subject) if drill.on_cluster else nullcontext()


class Play:
    """What all drills have in common: a job, its input, and what is seen at the end."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._edits = Edits(subject.place.edits, segment=_SEGMENT)

    def until_end(self) -> Seen:
        try:
            return self._seen(**self.carry_out())
        except HoldfastError as error:
            # Whatever kept it from its end: what the fault has done is worth seeing.
            return self._seen(trouble=str(error))

    def carry_out(self) -> dict[str, Any]:
        """What was seen on the way."""
        raise NotImplementedError

    def send_backlog(self) -> None:
        self._edits.send(_BACKLOG)

    def send_later(self) -> None:
        self._edits.send(_LATER)

    def lease_is_stale(self) -> bool:
        lease = self._subject.place.job.lease.read()
        assert lease is not None
        return (datetime.now(UTC) - lease.renewed).total_seconds() > LEASE_SECONDS

    def wake(self, zombie: Process) -> bool:
        """Let the driver that was replaced go on; whether it then was refused."""
        self._subject.gate.touch()
        signal_session(zombie.pid, signal.SIGCONT)
        return zombie.wait_for_end("the end of the driver that was replaced") != 0

    def _all_committed(self) -> bool:
        return self._subject.has_committed(self._edits.sent)

    def _wait(self, supervisor: Process, condition: Callable[[], bool], what: str) -> None:
        wait(lambda: condition() or supervisor.has_ended, what)
        if not condition():
            raise RunFailedError(
                "DRILL_JOB_ENDED",
                f"the supervisor ended while the drill waited for {what}.",
                fix=f"look into {self._subject.place.log} and {self._subject.place.job.logs}.",
            )

    # What was seen

    def _seen(self, **more: Any) -> Seen:
        place = self._subject.place
        return Seen(
            fired=tuple(fault.point for fault in self._subject.fired()),
            attempts=self._attempts(),
            half_visible=half_visible(place.balances),
            proof=self._proof(),
            **more,
        )

    def _attempts(self) -> tuple[SeenAttempt, ...]:
        return tuple(
            SeenAttempt(
                state=row.state.value,
                error=row.error.name if row.error else None,
                failure_class=row.failure_class,
            )
            for row in self._subject.attempts()
        )

    def _proof(self) -> Proof | None:
        place = self._subject.place
        with suppress(HoldfastError):  # nothing was written
            return prove(place.edits, place.balances, self._edits.sent)
        return None


class _EpochPlay(Play):
    def __init__(self, drill: Drill, subject: Subject) -> None:
        super().__init__(subject)
        self._drill = drill
        self._variables = _variables(drill, subject)

    def carry_out(self) -> dict[str, Any]:
        self.send_backlog()
        first = self._start_first()
        if not self._strikes(first):
            return {}
        if self._drill.recovery == "itself":
            return self._goes_on(first)
        supervisor = self._recover(first)
        self._wait(supervisor, lambda: len(self._subject.attempts()) > 1, "the next attempt")
        left_over = self._left_over()
        self.send_later()
        self._wait(supervisor, self._all_committed, "all rows to be committed")
        refused = self.wake(first) if self._drill.recovery == "takeover" else None
        self._subject.stop(supervisor)
        return {"left_over": left_over, "zombie_refused": refused}

    def _goes_on(self, supervisor: Process) -> dict[str, Any]:
        """The attempt that was struck, to its end."""
        self._subject.gate.touch()
        self.send_later()
        self._wait(supervisor, self._all_committed, "all rows to be committed")
        self._subject.stop(supervisor)
        missing = self._drill.told - self._subject.event_kinds()
        return {"complaints": tuple(f"the history has no {kind}" for kind in missing)}

    def _start_first(self) -> Process:
        # A driver that can outlive its replacement is one without a supervisor: that would
        # have ended it.
        alone = ["--unsupervised"] if self._drill.recovery == "takeover" else []
        return self._subject.start("run", str(JOB_FILE), *alone, variables=self._variables)

    def _strikes(self, first: Process) -> bool:
        """Wait for the fault, and do what the drill does from outside; False: it never came."""
        subject = self._subject
        wait(lambda: subject.fired() or first.has_ended or self._all_committed(), "the fault")
        fired = subject.fired()
        if not fired:
            return False
        self._strike(fired[0].pid, first)
        return True

    def _strike(self, waiting: int, supervisor: Process) -> None:
        """`waiting`: the process that waits at the moment."""
        match self._drill.blow:
            case "kill":
                kill(waiting)
            case "kill python":
                kill(os.getsid(waiting))  # the driver's session is led by its Python
            case "kill jvm":
                kill(*filter(is_java, session_members(os.getsid(waiting))))
            case "kill workers":
                kill(*_python_workers(os.getsid(waiting)))
            case "kill executor":
                kill(executor_of(self._subject, waiting))
            case "kill supervisor":
                supervisor.signal(signal.SIGKILL)
            case "pause":
                signal_session(os.getsid(waiting), signal.SIGSTOP)

    def _recover(self, first: Process) -> Process:
        """The supervisor that brings the job back."""
        match self._drill.recovery:
            case "resume":
                first.wait_for_end("the end of the supervisor")
                return self._subject.start("resume", JOB, variables=self._variables)
            case "takeover":
                wait(self.lease_is_stale, "a lease that nobody renews")
                return self._subject.start("run", str(JOB_FILE), variables=self._variables)
            case _:
                return first

    def _left_over(self) -> tuple[int, ...]:
        if self._drill.recovery == "takeover":
            return ()  # it is still asleep, and is not to be reached
        return tuple(session_members(self._subject.attempts()[0].pid))


def _variables(drill: Drill, subject: Subject) -> Mapping[str, str]:
    variables = (
        drill.injection.variables(build_library(subject.place.directory), subject.gate)
        if isinstance(drill.injection, CrashPoint)
        else drill.injection.variables(subject.gate)
    )
    if drill.blow == "pause":
        variables["HOLDFAST_HEARTBEAT_TIMEOUT"] = HEARTBEAT
    if drill.ends is not None and drill.ends.error == "EPOCH_TIMEOUT":
        variables[TIMEOUT_VARIABLE] = _EPOCH_TIMEOUT
    if drill.on_cluster:
        variables |= for_executors(subject, variables)
    return variables


def _python_workers(session: int) -> list[int]:
    """Of a driver: what its daemon has forked."""
    members = session_members(session)
    daemons = [pid for pid in members if (parent := parent_of(pid)) and is_java(parent)]
    return [pid for pid in members if parent_of(pid) in daemons]


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def signal_session(session: int, number: signal.Signals) -> None:
    for pid in session_members(session):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
