"""Runs a supervised job and kills its driver again and again. Run in a process of its own.

What the job reports is passed on, with a line `killed` for each kill. A driver is killed right
after an epoch, when the next one has begun: records are waiting all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.lease import LeaseFile
from holdfast.checkpoint.record import time_text

KILLED = "killed"
_TOO_FEW_KILLS = 3


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    killer = _Killer(LeaseFile(options.directory, ""), options.kills, options.epochs)
    with subprocess.Popen(options.command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            _say(line)
            if json.loads(line)["event"] == "epoch" and killer.is_due():
                _say(json.dumps(killer.kill()) + "\n")
    # A job that came to its end unharmed has shown nothing.
    return job.returncode or (_TOO_FEW_KILLS if killer.left else 0)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True, help="of the job")
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True, help="of an attempt before a kill")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


class _Killer:
    def __init__(self, lease: LeaseFile, kills: int, epochs: int) -> None:
        self._lease, self.left, self._epochs = lease, kills, epochs
        self._seen = 0

    def is_due(self) -> bool:
        """Asked after each epoch."""
        self._seen += 1
        return self.left > 0 and self._seen >= self._epochs

    def kill(self) -> dict[str, Any]:
        lease = self._lease.read()
        assert lease is not None
        assert lease.session is not None
        at = datetime.now(UTC)
        os.kill(lease.session, signal.SIGKILL)
        self.left, self._seen = self.left - 1, 0
        return {"event": KILLED, "at": time_text(at)}


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
