"""The process that carries an operation out.

It is a process of its own for three reasons: it imports the user's code and may start a JVM,
it goes on when the server dies, and when it dies itself the server does not.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from holdfast.control.operations import Place
from holdfast.control.registry import Registry
from holdfast.control.tracked.carry_out import carry_out
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.record import OperationProgress, OperationWorker
from holdfast.errors import HoldfastError
from holdfast.faults import fault_point
from holdfast.storage.processes import started_at

_PROGRESS_SECONDS = 0.5


def work(operation_id: str, tries: int, settings: Any) -> bool:
    """Carry it out here; False if somebody else does, or it is over."""
    with Registry(str(settings.registry_url)) as registry:
        registry.ensure_schema()
        log = OperationLog(registry)
        operation = log.begin(operation_id, tries, this_process())
        if operation is None:
            return False
        fault_point("tracked.begun")
        if operation.tries > 1:
            log.say(operation.id, "the process that was at it is gone; it goes on")
        place = Place(
            registry,
            settings,
            say=lambda line: log.say(operation.id, line),
            progress=_Reported(log, operation.id),
        )
        try:
            result = carry_out(place, operation)
        except HoldfastError as error:
            log.fail(operation.id, error)
        except BaseException as error:
            log.fail(operation.id, _unexpected(error))
            raise
        else:
            log.succeed(operation.id, result)
        return True


def this_process() -> OperationWorker:
    pid = os.getpid()
    return OperationWorker(pid=pid, started=started_at(pid), host=socket.gethostname())


def _unexpected(error: BaseException) -> HoldfastError:
    return HoldfastError(
        "INTERNAL_ERROR",
        f"{type(error).__name__}: {error}",
        fix="this is a bug in holdfast; the operation's log has the traceback.",
    )


class _Reported:
    """Progress comes per file; the registry hears of it now and then."""

    def __init__(self, log: OperationLog, operation_id: str) -> None:
        self._log, self._id = log, operation_id
        self._next = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() < self._next and done < total:
            return
        self._next = time.monotonic() + _PROGRESS_SECONDS
        self._log.note_progress(self._id, OperationProgress(what=what, done=done, total=total))
