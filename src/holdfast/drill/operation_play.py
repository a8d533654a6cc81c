"""Carries a drill in an operation out: a job runs, the operation begins, the fault strikes."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from holdfast.drill.on_cluster import executor_of, is_java
from holdfast.drill.operation_drills import OperationDrill
from holdfast.drill.play import HEARTBEAT, Play, kill, place_to_run, signal_session
from holdfast.drill.subject import JOB, JOB_FILE, Process, Subject
from holdfast.drill.verdict import Seen
from holdfast.drill.waiting import wait
from holdfast.errors import HoldfastError, RunFailedError
from holdfast.savepoint.store import SavepointStore, verify
from holdfast.storage.processes import kill_session, session_members

_BACKLOG, _MORE, _LATER = 4, 4, 2
"""Segments before the savepoint that is gone back to, after it, and when the job is back."""
_FIRST, _TAKEN = "first", "taken"
"""Labels of the savepoint that is gone back to, and of the one that is taken in the drill."""
_PARTITIONS = "3"

_COMMANDS = {
    "savepoint": ("savepoint", "take", JOB, "--label", _TAKEN),
    "rollback": ("rollback", JOB, _FIRST, "--sink", "rewind"),
    "rescale": ("rescale", JOB, _PARTITIONS),
}
_UNSUPERVISED = {
    "rollback": ("--from", _FIRST, "--sink", "rewind"),
    "rescale": ("--from", _FIRST, "--sink", "rewind", "--parallelism", _PARTITIONS),
}
"""The same as options of `holdfast run`: a driver that can outlive its replacement is one
without a supervisor."""


def play_operation(drill: OperationDrill, directory: Path) -> Seen:
    """What was seen of it. No process is left behind, whatever happens."""
    with Subject(directory) as subject, place_to_run(drill, subject):
        return _OperationPlay(drill, subject).until_end()


class _OperationPlay(Play):
    def __init__(self, drill: OperationDrill, subject: Subject) -> None:
        super().__init__(subject)
        self._drill = drill
        self._variables = drill.injection.variables(subject.gate)
        if drill.blow == "pause":
            self._variables["HOLDFAST_HEARTBEAT_TIMEOUT"] = HEARTBEAT
        self._savepoints = SavepointStore(subject.place.directory / "savepoints")

    def carry_out(self) -> dict[str, object]:
        self._run_until_committed(_BACKLOG, self._subject.start("run", str(JOB_FILE)))
        self._given("savepoint", "take", JOB, "--label", _FIRST)
        self._all_committed_after(_MORE)
        refused = self._struck()
        self._all_committed_after(_LATER)
        self._given("stop", JOB)
        wait(lambda: not self._subject.is_held, "the end of the job")
        return {"zombie_refused": refused, "complaints": self._complaints()}

    def _struck(self) -> bool | None:
        """The operation, and what follows it, until the job runs again; for a driver that woke
        up too late, whether it was refused."""
        if self._drill.recovery == "takeover":
            return self._outlived()
        command = self._subject.start(*self._command, variables=self._variables)
        self._wait_for_fault(command)
        self._strike(command)
        self._subject.gate.touch()
        code = command.wait_for_end("the end of the command")
        if (code != 0) is not self._drill.command_fails:
            raise self._unexpected(f"the command ended with exit code {code}")
        if self._drill.recovery == "resume":
            wait(lambda: not self._subject.is_held, "the end of the job")
            self._subject.start("resume", JOB)
        if self._drill.command_fails:
            self._require_no_half_savepoint()
            self._given(*self._command)
        return None

    @property
    def _command(self) -> tuple[str, ...]:
        return _COMMANDS[self._drill.operation]

    def _strike(self, command: Process) -> None:
        lease = self._subject.place.job.lease.read()
        assert lease is not None
        match self._drill.victim:
            case "command":
                command.ensure_gone()
            case "supervisor":
                os.kill(lease.pid, signal.SIGKILL)
            case "executor":
                kill(executor_of(self._subject, command.pid))
            case "driver" if lease.session is not None:
                if self._drill.blow == "kill":
                    kill_session(lease.session)
                else:
                    signal_session(lease.session, signal.SIGSTOP)
            case "python" if lease.session is not None:
                kill(lease.session)  # it leads the session
            case "jvm" if lease.session is not None:
                kill(*filter(is_java, session_members(lease.session)))

    def _outlived(self) -> bool:
        """A driver without a supervisor is stopped on its way, replaced, and wakes up."""
        self._given("suspend", JOB)
        wait(lambda: not self._subject.is_held, "the end of the job")
        options = _UNSUPERVISED[self._drill.operation]
        zombie = self._subject.start(
            "run", str(JOB_FILE), "--unsupervised", *options, variables=self._variables
        )
        self._wait_for_fault(zombie)
        signal_session(zombie.pid, signal.SIGSTOP)
        wait(self.lease_is_stale, "a lease that nobody renews")
        self._run_until_committed(_LATER, self._subject.start("run", str(JOB_FILE)))
        return self.wake(zombie)

    # Steps

    def _run_until_committed(self, segments: int, job: Process) -> None:
        self._edits.send(segments)
        self._wait(job, self._all_committed, "all rows to be committed")

    def _all_committed_after(self, segments: int) -> None:
        self._edits.send(segments)
        wait(self._all_committed, "all rows to be committed")

    def _given(self, *command: str) -> None:
        """A command that has to succeed."""
        process = self._subject.start(*command)
        code = process.wait_for_end(f"the end of `holdfast {command[0]}`")
        if code != 0:
            raise self._unexpected(
                f"`holdfast {' '.join(command)}` ended with exit code {code}"
            )

    def _wait_for_fault(self, process: Process) -> None:
        wait(lambda: self._subject.fired() or process.has_ended, "the fault")

    # What must be true

    def _require_no_half_savepoint(self) -> None:
        if self._drill.operation == "savepoint":
            labels = [each.manifest.label for each in self._savepoints.all()]
            if labels != [_FIRST]:
                raise self._unexpected(f"savepoints {labels} can be seen")

    def _complaints(self) -> tuple[str, ...]:
        """What is wrong with the savepoints and with the state that the job has ended with."""
        wrong = []
        found, unreadable = self._savepoints.scan()
        wrong += [str(error) for error in unreadable]
        for savepoint in found:
            with suppress(HoldfastError):
                verify(savepoint)
                continue
            wrong.append(f"savepoint {savepoint.manifest.label!r} is damaged")
        if self._drill.operation == "savepoint" and len(found) != 2:
            wrong.append(f"there are {len(found)} savepoints instead of 2")
        identity = self._subject.place.job.load()
        rescaled = self._drill.operation == "rescale" and self._drill.recovery != "takeover"
        partitions = int(_PARTITIONS) if rescaled else 2
        if identity is None or identity.parallelism != partitions:
            wrong.append(f"the state does not have {partitions} partitions")
        return tuple(wrong)

    def _unexpected(self, what: str) -> RunFailedError:
        return RunFailedError(
            "DRILL_WENT_WRONG", f"{what}.", fix=f"look into {self._subject.place.log}."
        )
