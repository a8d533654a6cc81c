"""Operations that are cancelled: whose word is the last, without a server."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.control.registry import Registry
from holdfast.control.tracked.cancelling import cancel, cancelled, finish_cancel
from holdfast.control.tracked.dispatch import Dispatcher
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.record import Operation, OperationState, OperationWorker
from holdfast.errors import ConflictError, RunFailedError
from holdfast.settings import load_settings
from holdfast.storage.processes import started_at


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OperationLog]:
    with Registry(f"sqlite:///{tmp_path}/registry.db") as registry:
        registry.ensure_schema()
        yield OperationLog(registry)


def added(log: OperationLog, kind: str = "savepoint") -> Operation:
    return log.add("wiki", kind, {}, asked_by="ann", exclusive=True)[0]


def begun(log: OperationLog, pid: int, host: str) -> Operation:
    operation = log.hand_out(added(log))
    assert operation is not None
    worker = OperationWorker(pid=pid, started=started_at(pid), host=host)
    found = log.begin(operation.id, 1, worker)
    assert found is not None
    return found


def test_one_that_waits_is_cancelled_at_once(log: OperationLog) -> None:
    operation = added(log)
    handed_out = log.hand_out(operation)
    assert handed_out is not None
    found = cancel(log, operation.id, asked_by="ann")
    assert found.state is OperationState.CANCELLED and found.ended is not None
    assert found.error is not None and "There is no job 'wiki' yet." in found.error.message
    # The process that it was handed out to comes too late, and so does another one.
    worker = OperationWorker(pid=1, started=1, host="x")
    assert log.begin(operation.id, 1, worker) is None
    assert log.hand_out(handed_out) is None
    added(log, "stop")


def test_the_job_is_held_until_the_process_is_gone(log: OperationLog) -> None:
    operation = added(log)
    going = log.begin_cancel(operation.id)
    assert going is not None and going.state.is_open
    with pytest.raises(ConflictError, match="OPERATION_RUNNING"):
        added(log, "stop")
    finish_cancel(log, going)
    added(log, "stop")


def test_an_end_of_its_own_that_comes_first_stays(log: OperationLog) -> None:
    operation = added(log)
    going = log.begin_cancel(operation.id)
    assert going is not None
    log.succeed(operation.id, {})
    assert finish_cancel(log, going).state is OperationState.SUCCEEDED
    with pytest.raises(ConflictError, match="OPERATION_OVER"):
        cancel(log, operation.id, asked_by="ann")


def test_what_a_dead_process_was_about_to_cancel_is_cancelled_by_the_next_look(
    log: OperationLog, tmp_path: Path
) -> None:
    operation = added(log)
    log.begin_cancel(operation.id)
    Dispatcher(log, load_settings(home=tmp_path).values).look_after()
    found = log.get(operation.id)
    assert (found.state, found.tries) == (OperationState.CANCELLED, 0)


def test_a_process_of_another_machine_is_left_alone(log: OperationLog, tmp_path: Path) -> None:
    operation = begun(log, os.getpid(), "elsewhere.example")
    with pytest.raises(ConflictError, match="OPERATION_ELSEWHERE"):
        cancel(log, operation.id, asked_by="ann")
    assert log.get(operation.id).state is OperationState.RUNNING
    log.begin_cancel(operation.id)  # by a command over there
    Dispatcher(log, load_settings(home=tmp_path).values).look_after()
    assert log.get(operation.id).state is OperationState.CANCELLING


def test_a_process_that_no_server_has_started_is_not_killed(log: OperationLog) -> None:
    """Its session is that of a terminal, perhaps, with much else in it."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            operation = begun(log, sleeper.pid, socket.gethostname())
            with pytest.raises(RunFailedError, match="OPERATION_NOT_ENDED"):
                cancel(log, operation.id, asked_by="ann")
            assert sleeper.poll() is None
            assert log.get(operation.id).state is OperationState.CANCELLING
        finally:
            sleeper.kill()
    assert cancel(log, operation.id, asked_by="ann").state is OperationState.CANCELLED


@pytest.mark.parametrize(
    ("kind", "state", "running", "message", "fix"),
    [
        ("rescale", "SUSPENDED", False, "is SUSPENDED, and does not run", "holdfast resume"),
        ("start", "RUNNING", True, "is RUNNING and runs", "holdfast stop"),
        ("upgrade", None, False, "There is no job", "give it again"),
        ("verify", "RUNNING", True, "was cancelled.", "verify it again."),
    ],
)
def test_what_is_said(
    log: OperationLog, kind: str, state: str | None, running: bool, message: str, fix: str
) -> None:
    error = cancelled(added(log, kind), state, running)
    assert message in error.message
    assert fix in error.fix
