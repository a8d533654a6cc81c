"""Makes an archive of the classes that a job needs, from which the next JVM takes them.

Loading a class from a jar means to unpack, parse and verify it, and Spark needs over ten
thousand of them before the first epoch is committed. Java can dump the loaded classes when a
JVM ends (class data sharing), and map the dump into the next one. So here a JVM runs a small
job, stops it, starts it again from its checkpoint, and ends.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from holdfast.checkpoint.identity import JobDirectory
from holdfast.config import RuntimeConfig
from holdfast.engine.driver import AttemptRequest, run_attempt
from holdfast.job.flow import Flow
from holdfast.job.job import Job
from holdfast.sinks.files import Files as FileSink
from holdfast.sources.files import Files as FileSource
from holdfast.state.declare import ValueState
from holdfast.state.process import Context, KeyedProcess
from holdfast.storage.files import fsync_file, make_directory
from holdfast.storage.processes import is_alive

_OPTIONS = "spark.driver.extraJavaOptions"
_DDL = "user string, diff bigint"
_DUMP_SECONDS = 300.0
_UNFINISHED = ".classes-of-"


class _Totals(KeyedProcess):
    total = ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: Context) -> Iterator[tuple[str, int]]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


def make_class_archive(runtime: RuntimeConfig, archive: Path) -> None:
    """Takes about as long as two starts of a job. The JVM of this process must be new."""
    make_directory(archive.parent)
    # Beside it, and renamed when it is complete: a JVM would trust half of one.
    unfinished = archive.with_name(f"{_UNFINISHED}{os.getpid()}")
    _remove_leftovers(archive.parent)
    given = runtime.spark.get(_OPTIONS, "")
    options = {_OPTIONS: f"{given} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable".strip()}
    with tempfile.TemporaryDirectory(prefix="holdfast-training-") as folder:
        work = Path(folder)
        used = replace(
            runtime,
            storage=work,
            master="local[2]",
            driver_memory="1g",
            cache=None,
            spark={**runtime.spark, **options},
        )
        try:
            for attempt in (1, 2):
                _write_input(work / "edits", attempt)
                _run(_job(work), used, attempt)
            _end_jvm()
            fsync_file(unfinished)
            unfinished.replace(archive)
        finally:
            unfinished.unlink(missing_ok=True)


def _remove_leftovers(folder: Path) -> None:
    """A JVM dumps its classes even if the process that started it was killed."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        if not is_alive(int(path.name.removeprefix(_UNFINISHED)), None):
            path.unlink(missing_ok=True)


def _job(work: Path) -> Job:
    job = Job("training", parallelism=2)

    @job.pipeline
    def pipeline(flow: Flow) -> None:
        source = FileSource(str(work / "edits"), format="parquet", schema=_DDL)
        totals = flow.key_by(flow.source("edits", source), "user").process("t", _Totals())
        flow.sink("out", totals, FileSink(str(work / "out")))

    return job


def _write_input(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    users = [f"user-{at}" for at in range(1000)]
    table = pa.table({"user": users, "diff": list(range(1000))})
    pq.write_table(table, folder / f"{number}.parquet")


def _run(job: Job, runtime: RuntimeConfig, attempt: int) -> None:
    def ignore(_: object) -> None:
        """Nobody wants to know."""

    run_attempt(
        AttemptRequest(
            job,
            runtime,
            JobDirectory(runtime.storage, job.name),
            attempt,
            attempt,
            available_now=True,
            max_epochs=None,
            stop=threading.Event(),
            on_start=ignore,
            on_epoch=ignore,
            on_event=ignore,
        )
    )


def _end_jvm() -> None:
    """It dumps its classes when it ends, and it ends when its standard input does."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    process.wait(_DUMP_SECONDS)
