"""The driver: the process that one attempt of a job runs in. Its supervisor starts it.

It takes what to do from standard input (a line of JSON), and after that commands. What happens
it reports as lines of JSON to a pipe that only its supervisor holds. It never touches the
registry, so nothing that is wrong there can hold a job up. It dies with its supervisor: a job
without one would be nobody's.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, JobEvent, StartReport, time_text
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.config import RuntimeConfig
from holdfast.errors import HoldfastError, RunFailedError
from holdfast.storage.known_secrets import hide, hide_in

HEARTBEAT_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_LAST_WORDS_SECONDS = 10.0
_IN_WORDS = ("failed", "event")
"""What may quote a secret; the others have names and numbers."""


@dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """All that an attempt is told."""

    app: str
    job: str
    """What the file calls it."""
    code_version: str = ""
    attempt: int
    fence: int
    runtime: Mapping[str, Any]
    parallelism: int | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    available_now: bool = False
    max_epochs: int | None = None
    log: str
    """Where complaints go, the JVM's among them."""
    quiet: bool = False
    """Send what the job prints there, too."""
    restore: Mapping[str, Any] | None = None
    """A plan to carry out first."""
    name: str | None = None
    """What the job runs under, if not that."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> DriverSpec:
        return cls(**json.loads(line))

    def runtime_config(self) -> RuntimeConfig:
        return runtime_from(self.runtime)


def plain_runtime(runtime: RuntimeConfig) -> dict[str, Any]:
    return {**vars(runtime), "storage": str(runtime.storage), "spark": dict(runtime.spark)}


def runtime_from(plain: Mapping[str, Any]) -> RuntimeConfig:
    return RuntimeConfig(**dict(plain) | {"storage": Path(plain["storage"])})


def _await_jvm() -> None:
    """A JVM that stands still makes the driver silent, so that it is given up."""
    if "pyspark.sql" not in sys.modules:
        return  # there is no JVM yet, and a heartbeat does not wait for imports
    from holdfast.engine.pulse import await_answer

    with suppress(Exception):  # a JVM that is gone shows in other ways
        await_answer()


class Channel:
    """To the supervisor. A thread writes, so that a supervisor that sleeps holds up nothing."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="channel", daemon=True)
        self._thread.start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        if kind in _IN_WORDS:
            fields = hide_in(fields)
        self._waiting.put(json.dumps({"kind": kind, **fields}, default=str) + "\n")

    def close(self) -> None:
        """Let the last words be heard."""
        self._waiting.put(None)
        self._thread.join(_LAST_WORDS_SECONDS)

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._pipe.write(line)
                self._pipe.flush()
            except OSError:
                return  # nobody listens any more; we are about to die

    def _beat(self) -> None:
        while True:
            _await_jvm()
            self.send("heartbeat")
            time.sleep(HEARTBEAT_SECONDS)


def die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to be told


def _redirect(log: Path, descriptors: tuple[int, ...]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in descriptors:
        os.dup2(target, descriptor)
    os.close(target)


def _obey(commands: IO[str], stop: threading.Event) -> None:
    for line in commands:
        if json.loads(line)["command"] == "stop":
            stop.set()
    os._exit(1)  # the supervisor is gone


def main(arguments: list[str]) -> int:
    events, parent = int(arguments[0]), int(arguments[1])
    die_with_parent(parent)
    # Ctrl-C is the supervisor's; a SIGTERM to the driver alone asks it to finish its epoch.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(os.fdopen(events, "w", encoding="utf-8"))
    spec = DriverSpec.from_line(sys.stdin.readline())
    _redirect(Path(spec.log), (1, 2) if spec.quiet else (2,))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_obey, args=(sys.stdin, stop), daemon=True).start()
    try:
        ended = _attempt(spec, stop, channel)
        channel.send("ended", finished=ended)
        code = 0
    except HoldfastError as error:
        _complain()
        channel.send("failed", error=json.loads(error.to_json()))
        code = 1
    except Exception as error:
        _complain()
        failure = RunFailedError(
            "INTERNAL_ERROR",
            f"{type(error).__name__}: {error}",
            fix="this is a bug in holdfast; report it with the attempt's log.",
            detail=traceback.format_exc(),
        )
        channel.send("failed", error=json.loads(failure.to_json()))
        code = 1
    channel.close()
    # The JVM is told to end by the supervisor, which waits for it; nothing here needs to.
    os._exit(code)


def _complain() -> None:
    """The trace to the log. A disk that is full must not hide that it is."""
    with suppress(OSError):
        sys.stderr.write(hide(traceback.format_exc()))
        sys.stdout.flush()
        sys.stderr.flush()


def _attempt(spec: DriverSpec, stop: threading.Event, channel: Channel) -> bool:
    from holdfast.control.app import load_job
    from holdfast.engine.connectors import equipped
    from holdfast.engine.session import begin_jvm

    job = load_job(Path(spec.app), spec.job)
    job.name = spec.name or job.name
    if spec.parallelism is not None:
        job.parallelism = spec.parallelism
    job.arguments = job.arguments.told(spec.arguments)
    runtime = equipped(spec.runtime_config(), job)
    # Before pyspark is imported, and after the job's file, which may set variables for it.
    jvm = begin_jvm(runtime, Path(spec.log))
    from holdfast.engine.driver import AttemptRequest, run_attempt

    def on_start(start: StartReport) -> None:
        channel.send("started", report=asdict(start))

    def on_epoch(record: EpochRecord) -> None:
        channel.send("epoch", record=record.to_dict())

    def on_busy(active: bool) -> None:
        channel.send("busy", active=active)

    def on_event(event: JobEvent) -> None:
        channel.send("event", event=asdict(event) | {"at": time_text(event.at)})

    directory = JobDirectory(runtime.storage, job.name)
    return run_attempt(
        AttemptRequest(
            job,
            runtime,
            directory,
            spec.attempt,
            spec.fence,
            available_now=spec.available_now,
            max_epochs=spec.max_epochs,
            stop=stop,
            on_start=on_start,
            on_epoch=on_epoch,
            on_event=on_event,
            app_folder=Path(spec.app).parent,
            code_version=spec.code_version,
            restore=RestorePlan.from_dict(spec.restore) if spec.restore else None,
            jvm=jvm,
            on_busy=on_busy,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
