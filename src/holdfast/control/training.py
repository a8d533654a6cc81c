"""An archive of Spark's classes, made once per machine in the background.

The supervisor starts this when its job has been well for a while and there is no archive yet.
It is in nobody's way: lowest priority, files of its own, and it dies with its supervisor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.config import RuntimeConfig
from holdfast.control.driver_process import die_with_parent, plain_runtime, runtime_from
from holdfast.storage.processes import kill_session

HEALTHY_SECONDS = 60.0
"""A job that has run for a minute will run for longer; a short one is not to be disturbed."""
_LOWEST_PRIORITY = 19


class Training:
    """One process at most, and one try: what fails once would fail every minute."""

    def __init__(self, runtime: Callable[[], RuntimeConfig], log: Path) -> None:
        self._runtime, self._log = runtime, log
        self._process: subprocess.Popen[bytes] | None = None
        self._tried = False

    def consider(self, healthy_seconds: float) -> None:
        """Begin, if it is time; returns at once."""
        if self._tried or healthy_seconds < HEALTHY_SECONDS:
            return
        self._tried = True
        runtime = self._runtime()
        archive = missing_archive(runtime)
        if archive is not None:
            self._process = start_training(runtime, archive, self._log)

    def end(self) -> None:
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()


def missing_archive(runtime: RuntimeConfig) -> Path | None:
    """Where the archive is to be made; None: it is there, or none can be used here."""
    from holdfast.engine.jvm import class_archive

    if runtime.cache is None or not runtime.master.startswith("local"):
        return None
    archive = class_archive(Path(runtime.cache))
    return None if archive is None or archive.exists() else archive


def start_training(runtime: RuntimeConfig, archive: Path, log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "holdfast.control.training"),
                *(str(os.getpid()), str(archive)),
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin is not None
    # Not in the command line: Spark's settings may hold secrets.
    with process.stdin as channel:
        channel.write(json.dumps(plain_runtime(runtime)).encode())
    return process


def main(arguments: list[str]) -> None:
    parent, archive = arguments
    die_with_parent(int(parent))
    os.nice(_LOWEST_PRIORITY)
    from holdfast.engine.training import make_class_archive

    make_class_archive(runtime_from(json.load(sys.stdin)), Path(archive))


if __name__ == "__main__":
    main(sys.argv[1:])
