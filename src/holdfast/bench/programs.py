"""What is run: command lines of holdfast jobs and of plain Spark programs.

Both sides report in the same way, by JSON lines on standard output: `started` with the
seconds of each step of the start, then `epoch` for each micro-batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

PARTITIONS = 2
MASTER = f"local[{PARTITIONS}]"
HEAP_BYTES = 2 * 1024**3
DRIVER_MEMORY = f"{HEAP_BYTES // 1024**3}g"
EDITS_DDL = "user string, page string, diff bigint, ts timestamp, bot boolean, comment string"
KEYED_DDL = "user string, diff bigint, ts timestamp"
"""What the stateful programs read of an edit."""
TIMED_DDL = f"{KEYED_DDL}, due timestamp"
"""With the time of the timer that a record asks for, if it does."""
KAFKA_DDL = "user string, diff bigint"
"""What is read of an edit in Kafka, which has ten fields."""
SOURCE_VARIABLE = "BENCH_SOURCE"
FILES_VARIABLE = "BENCH_FILES_PER_EPOCH"
OUT_VARIABLE = "BENCH_OUT"
SERVERS_VARIABLE = "BENCH_SERVERS"
WATCH_VARIABLE = "BENCH_WATCH_ROCKSDB"
"""Set: a job reports how much memory RocksDB has taken."""

WHOLE_HEAP = {"spark.driver.extraJavaOptions": f"-Xms{DRIVER_MEMORY} -XX:+AlwaysPreTouch"}
"""The JVM takes its whole heap at once. What it takes beyond that is not heap."""

_JOBS = Path(__file__).with_name("jobs.py")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to measure. `folder` is its own: state, output and log are in it."""

    arguments: tuple[str, ...]
    folder: Path
    checkpoint: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def command(self) -> list[str]:
        return [self.python, *self.arguments]

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def home(self) -> Path:
        """Of a holdfast job."""
        return self.folder / "home"

    @property
    def registry(self) -> str:
        """Of a holdfast job."""
        return f"sqlite:///{self.home / 'registry.db'}"

    @property
    def savepoints(self) -> Path:
        """Of a holdfast job."""
        return self.home / "savepoints"

    @property
    def scratch(self) -> Path:
        return self.folder / "tmp"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def full_environment(self) -> dict[str, str]:
        """The user's, without settings of holdfast that would make runs differ."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith("HOLDFAST_")
        }
        # Spark's local files, RocksDB among them, go where the rest of the program is.
        return inherited | {"SPARK_LOCAL_DIRS": str(self.scratch)} | dict(self.environment)


def holdfast(
    job: str,
    folder: Path,
    *,
    source: Path,
    files_per_epoch: int,
    settings: Mapping[str, str] | None = None,
    spark: Mapping[str, str] | None = None,
    watch_rocksdb: bool = False,
) -> Program:
    """`holdfast run` of a job in jobs.py, until the input is used up.

    `settings` are holdfast's, by their names; `spark` is Spark's configuration.
    """
    home = folder / "home"
    given = {
        "master": MASTER,
        "driver_memory": DRIVER_MEMORY,
        "spark": json.dumps(dict(spark or {})),
        **(settings or {}),
    }
    return Program(
        arguments=(
            *("-m", "holdfast.cli.main", "run", str(_JOBS), "--job", job),
            *("--available-now", "--unsupervised", "--json", "--home", str(home)),
        ),
        folder=folder,
        checkpoint=home / "jobs" / job / "checkpoint",
        environment={
            SOURCE_VARIABLE: str(source),
            FILES_VARIABLE: str(files_per_epoch),
            OUT_VARIABLE: str(folder / "out"),
            **({WATCH_VARIABLE: "yes"} if watch_rocksdb else {}),
            **{f"HOLDFAST_{name.upper()}": value for name, value in given.items()},
        },
    )


def crashing(
    job: str, folder: Path, *, source: Path, files_per_epoch: int, kills: int, epochs: int
) -> Program:
    """A supervised `holdfast run` whose driver is killed after every so many epochs."""
    program = holdfast(job, folder, source=source, files_per_epoch=files_per_epoch)
    run = tuple(each for each in program.arguments if each != "--unsupervised")
    return replace(
        program,
        arguments=(
            *("-m", "holdfast.bench.crashes", "--directory", str(program.checkpoint.parent)),
            *("--kills", str(kills), "--epochs", str(epochs), "--", sys.executable, *run),
        ),
    )


def saving(job: str, program: Program, *, first: int, last: int, at_rest: int) -> Program:
    """A `holdfast run` of which savepoints are taken in every second epoch, and at the end."""
    return replace(
        program,
        arguments=(
            *("-m", "holdfast.bench.live_savepoints", "--job", job),
            *("--registry", program.registry, "--savepoints", str(program.savepoints)),
            *("--first", str(first), "--last", str(last), "--at-rest", str(at_rest)),
            *("--", sys.executable, *program.arguments),
        ),
    )


def restoring(program: Program, folder: Path, *, rounds: int, heap_limit: str) -> Program:
    """Starts a job again and again from the savepoints that `program` has left."""
    return Program(
        arguments=(
            *("-m", "holdfast.bench.restores", "--savepoints", str(program.savepoints)),
            *("--registry", program.registry, "--folder", str(folder)),
            *("--rounds", str(rounds), "--heap-limit", heap_limit),
        ),
        folder=folder,
        checkpoint=folder,
        environment=program.environment,
    )


def plain(query: str, folder: Path, *, source: Path, files_per_epoch: int) -> Program:
    """A query of plain.py, until the input is used up."""
    checkpoint = folder / "checkpoint"
    return Program(
        arguments=(
            *("-m", "holdfast.bench.plain", query, "--source", str(source)),
            *("--files-per-epoch", str(files_per_epoch)),
            *("--checkpoint", str(checkpoint), "--out", str(folder / "out")),
        ),
        folder=folder,
        checkpoint=checkpoint,
    )


def verifier(folder: Path, cases: Path) -> Program:
    """verify.py over all that `cases` lists."""
    return Program(
        arguments=("-m", "holdfast.bench.verify", str(cases)), folder=folder, checkpoint=folder
    )
