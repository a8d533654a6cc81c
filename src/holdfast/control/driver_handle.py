"""A driver process, as its supervisor holds it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from holdfast.control.driver_process import DriverSpec
from holdfast.errors import RunFailedError
from holdfast.storage.processes import kill_session

Message = Mapping[str, Any]


class DriverHandle:
    """Started at once, in a session of its own; it waits for :meth:`tell`."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            # -P: the working directory must not be searched for modules.
            [
                *(sys.executable, "-P", "-m", "holdfast.control.driver_process"),
                *(str(writing), str(os.getpid())),
            ],
            stdin=subprocess.PIPE,
            pass_fds=(writing,),
            start_new_session=True,
            text=True,
        )
        os.close(writing)
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=self._read,
            args=(os.fdopen(reading, encoding="utf-8"),),
            name="driver-events",
            daemon=True,
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """Also the number of its session."""
        return self._process.pid

    def tell(self, spec: DriverSpec) -> None:
        self._write(spec.to_line())

    def stop(self) -> None:
        """Ask it to finish the running epoch and end."""
        self._write(json.dumps({"command": "stop"}) + "\n")

    def next_message(self, seconds: float) -> Message | None:
        """What it reports next; None: nothing within that time, or nothing ever again."""
        with suppress(queue.Empty):
            return self._messages.get(timeout=seconds)
        return None

    @property
    def is_over(self) -> bool:
        """Whether it has ended and everything that it said has been read."""
        return not self._reader.is_alive() and self._messages.empty()

    def end(self) -> None:
        """Kill what is left of it; returns when the JVM and all workers are gone."""
        gone = kill_session(self.pid)
        self._process.wait()
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if not gone:
            raise RunFailedError(
                "DRIVER_NOT_GONE",
                f"processes of driver {self.pid} are still there after being killed.",
                fix="they hang in the file system or the kernel; the job can be resumed once "
                "they are gone.",
            )

    def how_it_ended(self) -> str:
        code = self._process.wait()
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead: that shows by itself
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self, events: IO[str]) -> None:
        with events:
            for line in events:
                with suppress(ValueError):  # cut off by a kill
                    self._messages.put(json.loads(line))
        self._messages.put(None)  # wakes the one who waits
