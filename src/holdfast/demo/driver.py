"""The driver of the demo's job: a child process in a session of its own.

A session, because kill -9 must reach the JVM as well, and because "gone" means that nothing
that the driver started is left.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from holdfast.demo.place import JOB_FILE, DemoPlace
from holdfast.errors import HoldfastError, RunFailedError

_POLL_SECONDS = 0.02
_GONE_SECONDS = 30.0
_END_SECONDS = 90.0
_SHOWN_LINES = 12


class DriverProcess:
    """`holdfast run`, started at once."""

    def __init__(self, place: DemoPlace, number: int) -> None:
        self._place, self.number = place, number
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._log_start = place.log.stat().st_size if place.log.exists() else 0
        with place.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    # -P: the working directory must not be searched for modules.
                    *(sys.executable, "-P", "-m", "holdfast.cli.main"),
                    *("run", str(JOB_FILE), "--home", str(place.directory), "--json"),
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
            target=self._read, args=(self._process.stdout,), name="demo-driver", daemon=True
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

    def kill(self) -> None:
        """SIGKILL to everything; returns when nothing is left."""
        self._signal_session(signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + _GONE_SECONDS
        while left := session_members(self.pid):
            if time.monotonic() > deadline:
                raise RunFailedError(
                    "DRIVER_NOT_GONE",
                    f"processes {', '.join(map(str, left))} of the killed driver are still "
                    f"there after {_GONE_SECONDS:g} s.",
                    fix="end them by hand; they may be stuck in a file system.",
                )
            # Python workers live in a process group of their own.
            self._signal_session(signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self._reader.join()

    def stop(self) -> list[dict[str, Any]]:
        """Ask it to end as Ctrl-C would, wait, and return its last reports."""
        self._process.terminate()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunFailedError(
                "DRIVER_DOES_NOT_END",
                f"the driver was asked to end and has not after {_END_SECONDS:g} s.",
                fix=self._where_to_look(),
            ) from None
        self._reader.join()
        if code != 0:
            raise self._died(code)
        return self.events()

    def ensure_gone(self) -> None:
        """For the way out, whatever has happened."""
        if self._process.poll() is None or session_members(self.pid):
            self.kill()

    def _signal_session(self, number: signal.Signals) -> None:
        members = session_members(self.pid)
        groups = {self.pid} if self._process.returncode is None else set()
        for member in members:
            try:
                groups.add(os.getpgid(member))
            except ProcessLookupError:
                continue
        for group in groups:
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                continue

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
            "DEMO_DRIVER_DIED",
            f"attempt {self.number} of the job ended by itself ({how}).\n{said}\n"
            f"Its log: {self._logs()}",
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
        """The driver's own, and the JVM's if it came to that."""
        jvm = self._place.job.logs
        return f"{self._place.log} and {jvm}/" if jvm.exists() else str(self._place.log)


def _environment(place: DemoPlace) -> dict[str, str]:
    """The user's own (Spark master, memory), but everything it keeps goes to the demo."""
    return os.environ | {
        "HOLDFAST_HOME": str(place.directory),
        "HOLDFAST_STORAGE": str(place.storage),
        "HOLDFAST_REGISTRY_URL": place.registry_url,
        "PYTHONUNBUFFERED": "1",
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


def session_members(session: int) -> list[int]:
    """The living processes of a session; zombies are dead."""
    found = []
    for pid, state in _processes():
        try:
            if not state.startswith("Z") and os.getsid(pid) == session:
                found.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def _processes() -> list[tuple[int, str]]:
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        return [(int(e.name), _state(e)) for e in proc.iterdir() if e.name.isdigit()]
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True
    )
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [(int(pid), state) for pid, state in pairs]


def _state(entry: Path) -> str:
    try:
        # The name of the program comes first, in parentheses, and may hold anything.
        return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"
