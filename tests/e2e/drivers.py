"""`holdfast run` as a child process, and ways to end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.drill.waiting import wait
from holdfast.storage.processes import session_members

COMMAND = (sys.executable, "-P", "-m", "holdfast.cli.main")
PATIENCE = 180.0


@dataclass(frozen=True)
class Home:
    """A working directory that is also HOLDFAST_HOME."""

    path: Path
    typed_in: Path | None = None
    """Where commands are typed, if not in that directory."""

    @property
    def faults_log(self) -> Path:
        return self.path / "faults.log"

    def variables(self, faults: str = "") -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return inherited | {
            "HOLDFAST_HOME": str(self.path / "home"),
            "HOLDFAST_FAULTS": faults,
            "HOLDFAST_FAULTS_LOG": str(self.faults_log),
        }

    def call(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.typed_in or self.path,
            env=self.variables() | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def driver(self, app: Path, *options: str, faults: str = "") -> Iterator[Driver]:
        """A driver in a session of its own; nothing of it is left afterwards."""
        reports, complaints = self.path / "events.jsonl", self.path / "stderr.log"
        with reports.open("w") as stdout, complaints.open("a") as stderr:
            process = subprocess.Popen(
                [*COMMAND, "run", str(app), "--unsupervised", "--json", *options],
                cwd=self.path,
                env=self.variables(faults),
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        driver = Driver(process, reports)
        try:
            yield driver
        finally:
            driver.kill()


@dataclass(frozen=True)
class Driver:
    process: subprocess.Popen[bytes]
    reports: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for line in self.reports.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # being written, or cut off by the kill
            if event.get("event") == kind:
                found.append(event)
        return found

    def wait_for_epochs(self, count: int) -> None:
        wait(lambda: self._alive() and len(self.events("epoch")) >= count, f"{count} epochs")

    def wait_for_start(self) -> None:
        wait(lambda: self._alive() and self.events("started"), "the start")

    def _alive(self) -> bool:
        assert self.process.poll() is None, f"the driver ended with {self.process.returncode}"
        return True

    def end(self) -> int:
        """Wait until it ends by itself; the exit code."""
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """kill -9 of all that it started; returns when nothing is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for member in session_members(self.process.pid):
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait(lambda: not session_members(self.process.pid), "the end of the session")
