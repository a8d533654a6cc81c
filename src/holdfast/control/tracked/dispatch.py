"""Starting the processes of operations, and looking after those whose process is gone."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast.control.launch import of_server
from holdfast.control.tracked.cancelling import finish_cancel
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.record import Operation, OperationState
from holdfast.errors import RunFailedError
from holdfast.storage.processes import is_alive

logger = logging.getLogger(__name__)

MOST_TRIES = 3
"""An operation that has cost this many processes their lives is not tried again."""


class Dispatcher:
    """Hands operations to processes. Safe to use from several threads."""

    def __init__(self, log: OperationLog, settings: Any) -> None:
        self._log, self._settings = log, settings
        self._started: dict[str, int] = {}
        """Pids, by operation."""
        self._lock = threading.Lock()

    @property
    def logs(self) -> Path:
        folder: Path = self._settings.home / "server" / "operations"
        return folder

    def start(self, operation: Operation) -> None:
        """In a session of its own: it goes on when this process is gone."""
        handed_out = self._log.hand_out(operation)
        if handed_out is None:
            return  # to somebody else, who was faster
        self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [
            *(sys.executable, "-P", "-m", "holdfast.cli.operate", operation.id),
            *(str(handed_out.tries), str(self._settings.home)),
        ]
        with self._lock, (self.logs / f"{operation.id}.log").open("ab") as output:
            # Not `subprocess`: that wants its children to be waited for.
            self._started[operation.id] = os.posix_spawn(
                sys.executable,
                command,
                of_server(self._settings),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                ],
                setsid=True,
            )

    def look_after(self) -> None:
        """Begin again what nobody carries out any more; give up what cannot be."""
        with self._lock:
            for operation_id, pid in list(self._started.items()):
                if _has_ended(pid):
                    del self._started[operation_id]
        for operation in self._log.open():
            if operation.state is OperationState.CANCELLING:
                self._finish_cancel(operation)
            elif self._is_cared_for(operation):
                continue
            elif operation.tries < MOST_TRIES:
                logger.info("operation begun again id=%s kind=%s", operation.id, operation.kind)
                self.start(operation)
            else:
                self._log.interrupt(operation.id, _given_up(operation))

    def _finish_cancel(self, operation: Operation) -> None:
        """Whoever asked for it may have died before it was done."""
        worker = operation.worker
        if worker is not None and worker.host != socket.gethostname():
            return
        try:
            finish_cancel(self._log, operation)
        except RunFailedError as error:  # the other operations are to be looked after, too
            logger.warning("operation not cancelled id=%s name=%s", operation.id, error.name)

    def _is_cared_for(self, operation: Operation) -> bool:
        if operation.id in self._started:
            return True
        worker = operation.worker
        return worker is not None and (
            worker.host != socket.gethostname() or is_alive(worker.pid, worker.started)
        )


def _has_ended(pid: int) -> bool:
    """And let the system forget it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # somebody else has waited for it
        return True


def _given_up(operation: Operation) -> RunFailedError:
    return RunFailedError(
        "OPERATION_INTERRUPTED",
        f"{operation.tries} processes died while they carried out operation {operation.id} "
        f"({operation.kind} of job {operation.job!r}).",
        fix=KINDS[operation.kind].fix + " Its log says how far it came.",
        operation=operation.id,
    )
