"""An operation that nobody wants any more: its process is ended, and its job is free again.

It goes in two steps. First it is noted that it is to be cancelled: from there on no process
begins it again. Then its process is ended, and only then the job is free. Whoever dies between
the two leaves the second one to the next look of a server.
"""

from __future__ import annotations

import socket

from holdfast.control.registry import Registry
from holdfast.control.running import is_running
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.record import Operation, OperationState, OperationWorker
from holdfast.errors import ConflictError, NotFoundError, RunFailedError
from holdfast.storage.processes import is_alive, kill_session

_PATIENCE_SECONDS = 5.0


def cancel(log: OperationLog, operation_id: str, *, asked_by: str) -> Operation:
    """Once it is cancelled; cancelling it twice is cancelling it once."""
    operation = log.get(operation_id)
    _require_here(operation)
    begun = log.begin_cancel(operation_id)
    if begun is not None:
        log.say(operation_id, f"cancel was asked for by {asked_by}")
    ended = finish_cancel(log, begun or log.get(operation_id))
    if ended.state is not OperationState.CANCELLED:
        raise _over(ended)
    return ended


def finish_cancel(log: OperationLog, operation: Operation) -> Operation:
    """End its process and free its job. What it came to by itself meanwhile stays."""
    if operation.state is OperationState.CANCELLING:
        if operation.worker is not None:
            _end_process(operation, operation.worker)
        log.cancel(operation.id, cancelled(operation, *_job_now(log.registry, operation.job)))
    return log.get(operation.id)


def _end_process(operation: Operation, worker: OperationWorker) -> None:
    """It leads a session, and a JVM that it has started is in it. The supervisor of a job has
    another one, and is left alone."""
    if worker.host != socket.gethostname() or not is_alive(worker.pid, worker.started):
        return
    kill_session(worker.pid, patience=_PATIENCE_SECONDS)
    if is_alive(worker.pid, worker.started):
        raise RunFailedError(
            "OPERATION_NOT_ENDED",
            f"process {worker.pid}, which carries out operation {operation.id}, is still there "
            "after being killed.",
            fix="it hangs in the file system or the kernel, or was not started by a server; "
            "cancel the operation again once it is gone.",
            operation=operation.id,
        )


def _job_now(registry: Registry, job: str) -> tuple[str | None, bool]:
    """Its state, and whether it runs; None: it is not known."""
    try:
        row = registry.job(job)
    except NotFoundError:
        return None, False
    return row.state.value, "directory" in row.spec and is_running(row)


def cancelled(operation: Operation, state: str | None, running: bool) -> RunFailedError:
    """What whoever waits for it is told: how the job is now, and what can be done. Pure."""
    kind, job = KINDS[operation.kind], operation.job
    said = f"operation {operation.id} ({operation.kind} of job {job!r}) was cancelled."
    fix = kind.fix
    if kind.exclusive:
        if state is None:
            said += f" There is no job {job!r} yet."
        else:
            said += f" The job is {state}{' and runs' if running else ', and does not run'}."
            ways = f"`holdfast {'stop' if running else 'resume'} {job}`"
            fix += f" Or leave it: {ways} {'ends the job' if running else 'runs it as it is'}."
    return RunFailedError("OPERATION_CANCELLED", said, fix=fix, operation=operation.id, job=job)


def _require_here(operation: Operation) -> None:
    worker = operation.worker
    if operation.state.is_open and worker and worker.host != socket.gethostname():
        raise ConflictError(
            "OPERATION_ELSEWHERE",
            f"operation {operation.id} is carried out by a process on {worker.host}.",
            fix=f"cancel it there: `holdfast operation cancel {operation.id}`.",
            operation=operation.id,
            host=worker.host,
        )


def _over(operation: Operation) -> ConflictError:
    return ConflictError(
        "OPERATION_OVER",
        f"operation {operation.id} ({operation.kind} of job {operation.job!r}) is "
        f"{operation.state}; there is nothing left to cancel.",
        fix="look at what it came to; what it has done is undone by another operation.",
        operation=operation.id,
        state=operation.state.value,
    )
