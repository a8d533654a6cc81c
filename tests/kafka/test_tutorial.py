"""Every command of docs/tutorial.md is run, and what it prints is compared with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from holdfast.control.kafka.broker import free_port
from holdfast.wikipedia.origins import synthetic_edits

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
EXAMPLES = ROOT / "examples" / "wikipedia"
PORT = "9092"
LOOKING = re.compile(
    r"^holdfast (ps|show|attempts|events|checkpoints|kafka read|state query|savepoint list)"
)
"""Commands that a reader repeats until they show what the page shows."""
_LOOK_SECONDS, _COMMAND_SECONDS = 150.0, 300.0


@dataclass(frozen=True)
class Step:
    command: str
    expected: tuple[str, ...]

    @property
    def fails(self) -> bool:
        return any(line.startswith("FAILED") for line in self.expected)

    def missing(self, output: str) -> str | None:
        """The first expected line that the output has not, in the order of the page."""
        lines = iter(output.splitlines())
        for pattern in map(_pattern, self.expected):
            if not any(pattern.search(line) for line in lines):
                return pattern.pattern
        return None


def _pattern(expected: str) -> re.Pattern[str]:
    """`…` is anything; so much space as it likes is between words."""
    words = (re.escape(word).replace("…", ".*") for word in expected.split())
    return re.compile(r"\s*".join(words))


def steps(page: str) -> Iterator[Step]:
    for block in re.findall(r"^```console\n(.*?)^```", page, re.S | re.M):
        for text in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *expected = text.rstrip("\n").split("\n")
            yield Step(command, tuple(expected))


class Reader:
    """Types the commands of the page."""

    def __init__(self, home: Path, jars: str, port: int) -> None:
        self._port = str(port)
        self._environment = {
            **os.environ,
            "HOLDFAST_HOME": str(home),
            "HOLDFAST_KAFKA_JARS": jars,
            "WIKIPEDIA_SERVERS": f"127.0.0.1:{port}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "400",
        }

    def do(self, step: Step) -> None:
        step = Step(self._own(step.command), tuple(map(self._own, step.expected)))
        deadline = time.monotonic() + _LOOK_SECONDS
        while True:
            code, output = self.type(step.command)
            missing = step.missing(output)
            right = missing is None and (code != 0) == step.fails
            if right or not LOOKING.match(step.command) or time.monotonic() > deadline:
                break
            time.sleep(1)
        assert right, f"$ {step.command}\n{output}\nexit code {code}, missing: {missing}"

    def type(self, command: str) -> tuple[int, str]:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=EXAMPLES,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        return ran.returncode, ran.stdout

    def _own(self, text: str) -> str:
        return text.replace(PORT, self._port)


def test_a_step_knows_what_is_missing() -> None:
    step = Step("x", ("NAME … STATE", "worker-1 … alive …"))
    assert step.missing("NAME   PID  STATE\nworker-1  7  alive  now\n") is None
    assert step.missing("worker-1  7  alive\nNAME STATE\n") is not None
    assert step.missing("NAME STATE\nworker-1 gone\n") is not None


def test_the_sums_of_the_page_are_those_of_the_edits() -> None:
    page, totals = PAGE.read_text("utf-8"), Counter[str | None]()
    for seed, limit in ((1, 20_000), (2, 10_000), (3, 10_000)):
        for edit in islice(synthetic_edits(users=5_000, seed=seed), limit):
            totals[edit.user] += edit.diff
        if seed != 2:
            assert f"{len(totals)} … {totals.total()}\n" in page


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_tutorial(tmp_path: Path, jars: str) -> None:
    page = list(steps(PAGE.read_text("utf-8")))
    assert len(page) > 30
    reader = Reader(tmp_path / "home", jars, free_port())
    try:
        for step in page:
            reader.do(step)
    finally:
        for job in re.findall(r'"name": "([^"]+)"', reader.type("holdfast ps --json")[1]):
            reader.type(f"holdfast cancel {job}")
        reader.type("holdfast cluster down; holdfast kafka down")
