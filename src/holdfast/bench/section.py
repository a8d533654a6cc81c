"""What a section of the benchmark is, and how it is run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from holdfast.bench import inputs
from holdfast.bench.measure import Failed, Measured, measure
from holdfast.bench.programs import Program

EDIT_FILES = 80
SMALL_BATCH, LARGE_BATCH = 2, 10
"""Files per epoch: 100,000 and 500,000 records."""
HEAP_LIMIT = "6 GiB"
"""For sections with many keys: none of them is to be dropped and loaded again."""

TWS = "plain transformWithState"
GROUP_BY = "plain groupBy"
PROCESS = "holdfast .process"
PROCESS_ROCKSDB = "holdfast .process, rocksdb"
PROCESS_BATCH = "holdfast .process_batch"

Summary = dict[str, Any]
"""A section's `rows` and `bars`, ready for JSON."""


@dataclass(frozen=True, kw_only=True)
class KafkaPlace:
    """Where the broker of the Kafka section is to listen, and what its programs need."""

    port: int
    cache: Path
    """Of the broker's jars."""
    jars: str
    packages: str
    """Spark's connector, as in the settings."""
    peers: Mapping[str, tuple[str, ...]]
    """Other programs by name, each with the command that runs it."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Work:
    """How much there is to do. A smaller scale means smaller batches, not fewer of them."""

    folder: Path
    scale: float
    kafka: KafkaPlace | None = None
    rows: str = ""
    """Only programs with this in their names."""

    def scaled(self, count: int, *, at_least: int = 1) -> int:
        return max(at_least, round(count * self.scale))

    @cached_property
    def file_records(self) -> int:
        return self.scaled(50_000, at_least=10)

    @cached_property
    def users(self) -> int:
        return self.scaled(120_000, at_least=10)

    def batch(self, files: int) -> int:
        return files * self.file_records

    @cached_property
    def edits(self) -> Path:
        return self.folder / "inputs" / f"edits-{self.file_records}"

    def make_edits(self) -> None:
        inputs.edits(
            self.edits, files=EDIT_FILES, file_records=self.file_records, users=self.users
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One program to run in a section."""

    name: str
    program: Program
    batch: int
    source: Path
    keys: int = 0
    timers: int = 0
    near_timers: int = 0
    """Timers that are to fire while the program runs."""
    rocksdb_bound: int = 0
    skip_epochs: int = 0
    kind: str = ""
    """How verify.py reads the state."""

    @property
    def label(self) -> str:
        keys = f", {self.keys:,} keys" if self.keys else ""
        timers = f", {self.timers:,} timers" if self.timers else ""
        return f"{self.name}, {self.batch:,} records per batch{keys}{timers}"


@dataclass(frozen=True, kw_only=True)
class Result:
    row: Row
    outcome: Measured | Failed
    exact: bool | None = None

    @property
    def run(self) -> Measured | None:
        return self.outcome if isinstance(self.outcome, Measured) else None

    def common(self) -> dict[str, Any]:
        """What every section's rows tell."""
        run, failure = self.run, None if self.run else self.outcome
        return {
            "name": self.row.name,
            "batch": self.row.batch,
            "failed": failure.reason if isinstance(failure, Failed) else None,
            "peak_memory": asdict(run.memory) if run else None,
            "batch_seconds": [round(epoch.seconds, 3) for epoch in run.epochs] if run else [],
            "run_seconds": round(run.seconds, 1) if run else None,
        }


class Progress(Protocol):
    """Who is told how far the benchmark is."""

    def step(self, text: str) -> None:
        """Something begins that is not measured."""

    def begin(self, section: str, label: str) -> None: ...

    def epoch(self, number: int) -> None: ...

    def end(self, section: str, label: str, outcome: Measured | Failed) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Section:
    """`plan` is pure; `prepare` makes the inputs; `check` says which results are exact."""

    name: str
    plan: Callable[[Work], list[Row]]
    prepare: Callable[[Work], None]
    summarise: Callable[[Sequence[Result]], Summary]
    check: Callable[[Work, Sequence[Result], Progress], dict[int, bool]] = (
        lambda work, results, progress: {}
    )
    tear_down: Callable[[Work], None] = lambda work: None
    on_request: bool = False
    """Only run when it is named."""

    def folder(self, work: Work) -> Path:
        return work.folder / "runs" / self.name

    def wanted(self, work: Work) -> list[Row]:
        return [row for row in self.plan(work) if work.rows in row.name]


def run_section(section: Section, work: Work, progress: Progress) -> Summary:
    shutil.rmtree(section.folder(work), ignore_errors=True)
    progress.step(f"{section.name}: making the input")
    try:
        section.prepare(work)
        results = _measured(section, work, progress)
    finally:
        section.tear_down(work)
    progress.step(f"{section.name}: checking what was written")
    verdicts = section.check(work, results, progress)
    results = [
        Result(row=result.row, outcome=result.outcome, exact=verdicts.get(at))
        for at, result in enumerate(results)
    ]
    for result in results:
        if result.run and result.exact is not False:
            shutil.rmtree(result.row.program.folder)
    return section.summarise(results)


def _measured(section: Section, work: Work, progress: Progress) -> list[Result]:
    results = []
    for row in section.wanted(work):
        progress.begin(section.name, row.label)
        outcome = measure(row.program, progress.epoch)
        progress.end(section.name, row.label, outcome)
        results.append(Result(row=row, outcome=outcome))
    return results
