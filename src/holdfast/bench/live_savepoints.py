"""Runs a job and takes savepoints of it. Run in a process of its own.

What the job reports is passed on, with a line `savepoint` for each one. While the job runs, one
is taken in every second epoch; when it has ended, some more, with the machine at rest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from holdfast.checkpoint.record import time_text
from holdfast.clock import SystemClock
from holdfast.control.registry import Registry
from holdfast.control.savepoints import take_savepoint
from holdfast.savepoint.store import Savepoint, SavepointStore, verify

TAKEN = "savepoint"
LIVE, AT_REST = "running", "at rest"
"""What the job did meanwhile; also the label of the savepoint."""


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    store, taken = SavepointStore(options.savepoints), []
    due = range(options.first, options.last + 1, 2)
    with subprocess.Popen(options.command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            _say(line)
            event = json.loads(line)
            # The next epoch has begun when one is reported: records are waiting all the time.
            if event["event"] == "epoch" and event["epoch"] in due:
                taken.append(_take(options, store, LIVE))
    if job.returncode:
        return job.returncode
    taken += [_take(options, store, AT_REST) for _ in range(options.at_rest)]
    for savepoint in taken:
        verify(savepoint)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--registry", required=True, help="URL")
    parser.add_argument("--savepoints", type=Path, required=True, help="where to keep them")
    parser.add_argument(
        "--first", type=int, required=True, help="epoch after which to take one"
    )
    parser.add_argument("--last", type=int, required=True, help="no more after this epoch")
    parser.add_argument("--at-rest", type=int, required=True, help="how many after the end")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _take(options: argparse.Namespace, store: SavepointStore, label: str) -> Savepoint:
    phases, started = Phases(), datetime.now(UTC)
    with Registry(options.registry) as registry:
        row = registry.job(options.job)
        savepoint = take_savepoint(
            registry, row, store, SystemClock(), label=label, progress=phases
        )
    manifest = savepoint.manifest
    event = {
        "event": TAKEN,
        "meanwhile": label,
        "epoch": manifest.epoch,
        "started": time_text(started),
        "ended": time_text(datetime.now(UTC)),
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        **phases.seconds(),
    }
    _say(json.dumps(event) + "\n")
    return savepoint


class Phases:
    """Watches a savepoint being taken, and tells what took how long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seen: dict[str, tuple[float, float]] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        first, _ = self._seen.get(what, (now, now))
        self._seen[what] = (first, now)

    def seconds(self) -> dict[str, float]:
        """To be asked when it is over. All but the first, which is the sum, add up to it."""
        ended = time.monotonic()
        (copying, copied), (_, hashed) = self._seen["copy"], self._seen["hash"]
        marks = {
            "find": copying,
            "link": copied,
            "hash": hashed,
            "finish": ended,
        }
        parts, before = {"seconds": round(ended - self._began, 4)}, self._began
        for name, mark in marks.items():
            parts[name] = round(mark - before, 4)
            before = mark
        return parts


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
