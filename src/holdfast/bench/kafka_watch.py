"""Runs a program that goes from a topic to a topic, and ends it when nothing more comes out.

Run in a process of its own. Programs other than ours have no end; what they write is watched
from the outside, by the end of the topic alone, which costs them nothing. With `--kill-at`
everything is killed once so much has been written, and started again. At the end the topic is
read and compared with what it should hold; the verdict is one line on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from holdfast.bench.kafka_output import OUTPUT, figures, read_truth
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import KafkaAdmin
from holdfast.storage.kafka_topic import read_topic
from holdfast.storage.processes import session_members

_POLL_SECONDS = 0.2
_QUIET_SECONDS = 20.0
"""Without output for so long, after there was some: it is done."""
_QUIET_AFTER_KILL_SECONDS = 60.0
"""The end of a topic also moves when the broker aborts what was left open."""
_PATIENCE_SECONDS = 180.0
"""For the first output after a start."""
_NO_OUTPUT = 4


class _Topic:
    def __init__(self, access: KafkaAccess, name: str) -> None:
        self._admin = KafkaAdmin(access)
        self._partitions = self._admin.partitions([name])
        self._name = name

    def end(self) -> int:
        return sum(self._admin.latest(self._partitions)[self._name].values())


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    access = KafkaAccess(servers=options.servers)
    topic = _Topic(access, options.topic)
    code = _run(options.command, topic, _QUIET_SECONDS, stop_at=options.kill_at)
    killed_at = None
    if options.kill_at is not None and not code:
        killed_at = time.time()
        code = _run(options.command, topic, _QUIET_AFTER_KILL_SECONDS)
    if not code:
        records, truth = read_topic(access, options.topic), read_truth(options.truth)
        found = figures(records, truth, killed_at)
        sys.stdout.write(json.dumps({"event": OUTPUT, **found}) + "\n")
    return code


def _run(command: list[str], topic: _Topic, quiet: float, stop_at: int | None = None) -> int:
    with subprocess.Popen(command) as program:
        try:
            return _watch(program, topic, quiet, stop_at)
        finally:
            _kill_all()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True, help="of the output")
    parser.add_argument("--truth", type=Path, required=True, help="of the totals")
    parser.add_argument("--kill-at", type=int, help="rows in the topic")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _watch(
    program: subprocess.Popen[bytes], topic: _Topic, quiet: float, stop_at: int | None
) -> int:
    """Until it ends, has written enough, or writes no more; then 0, or what it exited with."""
    seen = began = topic.end()
    changed = time.monotonic()
    while True:
        time.sleep(_POLL_SECONDS)
        end, now = topic.end(), time.monotonic()
        if end != seen:
            seen, changed = end, now
        if stop_at is not None and end >= stop_at:
            return 0
        code = program.poll()
        if code is not None:
            return code
        if now - changed > (quiet if seen > began else _PATIENCE_SECONDS):
            return 0 if seen > began else _NO_OUTPUT


def _kill_all() -> None:
    """Everything in this session but ourselves: workers may have left the process group."""
    while others := set(session_members(os.getsid(0))) - {os.getpid()}:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
