"""Carries out the drill on a cluster: an executor dies, and the attempt goes on without it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.drill.drills import Drill
from holdfast.drill.play import Play
from holdfast.drill.python_faults import PythonFault
from holdfast.drill.subject import JOB_FILE, Subject
from holdfast.drill.verdict import Seen
from holdfast.faults import LOG_VARIABLE
from holdfast.storage.processes import parent_of

_WORKERS = ("--workers", "2", "--memory", "512m")
_TOLD = ("executor_lost", "loss_overcome")
"""What the history must say about it."""


def play_on_cluster(drill: Drill, directory: Path) -> Seen:
    """What was seen of it. No process is left behind, whatever happens."""
    with Subject(directory) as subject:
        try:
            return _ExecutorPlay(drill, subject).until_end()
        finally:
            subject.start("cluster", "down").wait_for_end("the end of the cluster")


class _ExecutorPlay(Play):
    def __init__(self, drill: Drill, subject: Subject) -> None:
        super().__init__(subject)
        assert isinstance(drill.injection, PythonFault)
        self._faults = drill.injection.variables(subject.gate)

    def carry_out(self) -> dict[str, Any]:
        subject = self._subject
        self.send_backlog()
        up = subject.start("cluster", "up", *_WORKERS)
        if up.wait_for_end("the start of the cluster") != 0:
            return {"complaints": (f"the cluster did not start: see {subject.place.log}",)}
        supervisor = subject.start("run", str(JOB_FILE), variables=self._variables())
        self._wait(supervisor, lambda: bool(subject.fired()), "the fault")
        os.kill(executor_of(subject.fired()[0].pid), signal.SIGKILL)
        subject.gate.touch()  # its Python worker lives on, and has nobody to talk to
        self.send_later()
        self._wait(supervisor, self._all_committed, "all rows to be committed")
        subject.stop(supervisor)
        silent = [kind for kind in _TOLD if kind not in subject.event_kinds()]
        return {"complaints": tuple(f"the history has no {kind}" for kind in silent)}

    def _variables(self) -> Mapping[str, str]:
        """Executors inherit nothing from a driver, so faults come to them through Spark."""
        armed = {**self._faults, LOG_VARIABLE: str(self._subject.faults_log)}
        through = {f"executorEnv.{name}": value for name, value in armed.items()}
        return {"HOLDFAST_MASTER": "cluster", "HOLDFAST_SPARK": json.dumps(through)}


def executor_of(worker: int) -> int:
    """The JVM that a Python worker works for."""
    pid: int | None = worker
    while pid is not None and Path(f"/proc/{pid}/comm").read_text("utf-8").strip() != "java":
        pid = parent_of(pid)
    assert pid is not None
    return pid
