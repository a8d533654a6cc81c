"""The job that a drill breaks, as processes of this machine."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from holdfast.control.registry import AttemptRow, Registry
from holdfast.demo.place import DemoPlace, FileProgress
from holdfast.drill.waiting import wait
from holdfast.errors import NotFoundError
from holdfast.faults import LOG_VARIABLE, Fired, fired_faults
from holdfast.storage.files import make_directory
from holdfast.storage.processes import is_alive, is_session, kill_session

JOB = "drill"
JOB_FILE = Path(__file__).with_name("job.py")
_COMMAND = (sys.executable, "-P", "-m", "holdfast.cli.main")


@dataclass(frozen=True)
class Process:
    """A `holdfast` command in a session of its own."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def has_ended(self) -> bool:
        return self.popen.poll() is not None

    def wait_for_end(self, what: str) -> int:
        wait(lambda: self.has_ended, what)
        return self.popen.returncode

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def ensure_gone(self) -> None:
        kill_session(self.pid)
        self.popen.wait()


class Subject:
    """A job in a directory of its own. Leaves no process behind when used with ``with``."""

    def __init__(self, directory: Path) -> None:
        self.place = DemoPlace(directory, JOB)
        self.progress = FileProgress(self.place)
        self.gate = directory / "gate"
        self.faults_log = directory / "faults.log"
        self.master = "local[2]"
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        make_directory(self.place.edits)
        self._registry = Registry(self.place.registry_url)
        self._registry.ensure_schema()
        return self

    def __exit__(self, *_: object) -> None:
        self._registry.close()
        for process in self._processes:
            process.ensure_gone()
        lease = self.place.job.lease.read()
        if lease is None:
            return
        if self.is_held:
            kill_session(lease.pid)  # who would start the job again
        if lease.session is not None and is_session(lease.session, lease.session_started):
            kill_session(lease.session)

    # Processes

    def start(self, *arguments: str, variables: Mapping[str, str] = {}) -> Process:
        """`holdfast` with these arguments, and `variables` in its environment."""
        with self.place.log.open("ab") as log:
            popen = subprocess.Popen(
                [*_COMMAND, *arguments, "--json"],
                cwd=self.place.directory,
                env={**self._environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = Process(popen)
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return inherited | {
            "HOLDFAST_HOME": str(self.place.directory),
            "HOLDFAST_MASTER": self.master,
            LOG_VARIABLE: str(self.faults_log),
        }

    def fired(self) -> list[Fired]:
        return fired_faults(self.faults_log)

    # The job

    def attempts(self) -> list[AttemptRow]:
        try:
            return self._registry.attempts(self._registry.job(JOB).id)
        except NotFoundError:
            return []

    def event_kinds(self) -> set[str]:
        """What has happened to the job."""
        return {event.kind for event in self._registry.events(self._registry.job(JOB).id)}

    @property
    def is_held(self) -> bool:
        """Whether a living supervisor has the job."""
        lease = self.place.job.lease.read()
        return (
            lease is not None
            and bool(lease.owner)
            and is_alive(lease.pid, lease.process_started)
        )

    def has_committed(self, rows: int) -> bool:
        """Whether so many rows are in committed epochs, and no epoch is open."""
        self.progress.refresh()
        return self.progress.rows >= rows and self.progress.open_epoch() is None

    def stop(self, supervisor: Process) -> None:
        self._registry.ask(self._registry.job(JOB).id, "stop", getpass.getuser())
        supervisor.wait_for_end("the end of the job")
