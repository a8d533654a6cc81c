"""The demo's job under supervision: `holdfast run` as a child process.

Its driver has a session of its own, because kill -9 must reach the JVM as well, and because
"gone" means that nothing that the driver started is left.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from holdfast.demo.place import DemoPlace
from holdfast.errors import HoldfastError, RunFailedError
from holdfast.storage.processes import kill_session, session_members

_GONE_SECONDS = 30.0
_END_SECONDS = 90.0
_SHOWN_LINES = 12


class SupervisedJob:
    """`holdfast run`, started at once."""

    def __init__(self, place: DemoPlace, app: Path, *options: str) -> None:
        self._place = place
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._log_start = place.log.stat().st_size if place.log.exists() else 0
        with place.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    # -P: the working directory must not be searched for modules.
                    *(sys.executable, "-P", "-m", "holdfast.cli.main"),
                    *("run", str(app), "--home", str(place.directory), *options, "--json"),
                ],
                cwd=place.directory,
                env=_environment(place),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="demo-job", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def events(self) -> list[dict[str, Any]]:
        """What it has reported since the last call."""
        found = []
        while not self._events.empty():
            found.append(self._events.get())
        return found

    def require_alive(self) -> None:
        """Raise the error it died of, if it died."""
        code = self._process.poll()
        if code is not None:
            raise self._died(code)

    def kill_driver(self) -> int:
        """kill -9 of the driver with its JVM and workers; the pid it had, once all are gone."""
        lease = self._place.job.lease.read()
        assert lease is not None
        assert lease.session is not None
        if not kill_session(lease.session, patience=_GONE_SECONDS):
            left = ", ".join(map(str, session_members(lease.session)))
            raise RunFailedError(
                "DRIVER_NOT_GONE",
                f"processes {left} of the killed driver are still there after "
                f"{_GONE_SECONDS:g} s.",
                fix="end them by hand; they may be stuck in a file system.",
            )
        return lease.session

    def wait_for_end(self) -> list[dict[str, Any]]:
        """Wait until it has ended, as it was asked to, and return its last reports."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunFailedError(
                "JOB_DOES_NOT_END",
                f"the job was asked to end and has not after {_END_SECONDS:g} s.",
                fix=self._where_to_look(),
            ) from None
        self._reader.join()
        if code != 0:
            raise self._died(code)
        return self.events()

    def ensure_gone(self) -> None:
        """For the way out, whatever has happened. A driver dies with its supervisor."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        lease = self._place.job.lease.read()
        if lease is not None and lease.session is not None:
            kill_session(lease.session, patience=_GONE_SECONDS)

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # cut off by the kill
                if isinstance(event, dict):
                    self._events.put(event)

    def _died(self, code: int) -> HoldfastError:
        text = self._log_text()
        cause = _reported_error(text)
        if cause is not None:
            said, fix = f"{cause.name}: {cause.message}", cause.fix or self._where_to_look()
        else:
            tail = "\n".join(text.splitlines()[-_SHOWN_LINES:])
            said, fix = tail or "it said nothing", self._where_to_look()
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return RunFailedError(
            "DEMO_JOB_DIED",
            f"the job ended by itself ({how}).\n{said}\nIts log: {self._logs()}",
            fix=fix,
            exit_code=code,
            log=str(self._place.log),
        )

    def _log_text(self) -> str:
        with self._place.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def _where_to_look(self) -> str:
        return f"look into {self._logs()}; run `holdfast doctor`."

    def _logs(self) -> str:
        """The supervisor's own, and the driver's if it came to that."""
        jvm = self._place.job.logs
        return f"{self._place.log} and {jvm}/" if jvm.exists() else str(self._place.log)


def call(place: DemoPlace, *arguments: str, expected: Collection[int] = (0,)) -> Any:
    """A command as a user gives it; what it prints with --json. `expected`: exit codes."""
    done = subprocess.run(
        [*(sys.executable, "-P", "-m", "holdfast.cli.main"), *arguments, "--json"],
        cwd=place.directory,
        env=_environment(place),
        capture_output=True,
        text=True,
        timeout=_END_SECONDS,
        check=False,
    )
    if done.returncode not in expected:
        raise _reported_error(done.stderr) or RunFailedError(
            "DEMO_COMMAND_FAILED",
            f"`holdfast {shlex.join(arguments)}` ended with {done.returncode}: {done.stderr}",
            fix=f"look into {place.log}.",
        )
    return json.loads(done.stdout)


def _environment(place: DemoPlace) -> dict[str, str]:
    """The user's own (Spark master, memory), but everything it keeps goes to the demo."""
    return os.environ | {
        "HOLDFAST_HOME": str(place.directory),
        "HOLDFAST_STORAGE": str(place.storage),
        "HOLDFAST_SAVEPOINTS": str(place.directory / "savepoints"),
        "HOLDFAST_REGISTRY_URL": place.registry_url,
        "PYTHONUNBUFFERED": "1",
        **place.environment,
    }


def _reported_error(text: str) -> HoldfastError | None:
    """The error that `holdfast run --json` wrote as its last words, if it could."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return HoldfastError.from_json(line)
            except (ValueError, KeyError, TypeError):
                continue
    return None
