"""A job and its fork: real output, and as much of a checkpoint as can be had without Spark."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import EpochRecord, EpochStatus, StateSize
from holdfast.control.fork_plans import forked
from holdfast.control.registry import Registry, RunState
from holdfast.control.restore import StartPoint
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile

FORKED_AT = 1
LAST = 3
APP = """\
import holdfast as hf

job = hf.Job({name!r}, parallelism=2)


@job.pipeline
def pipeline(flow):
    log = hf.sources.FileLog("edits", schema="user string")
    flow.sink("out", flow.source("edits", log), hf.sinks.Files("out", format="json"))
"""


def rehearse(
    settings: Any,
    registry: Registry,
    *,
    name: str = "wiki",
    fork: str = "v2",
    value: str = "{n}",
) -> Path:
    """Both have written epochs 2 and 3, of three rows; one of each is another one, and only the
    fork has read the newest file. Returns the folder of the output; `value` makes rows."""
    folder = Path(settings.home) / f"data of {name}"
    folder.mkdir(parents=True)
    parent = JobIdentity(
        job_id=f"id-{name}",
        name=name,
        parallelism=2,
        key_groups=64,
        sources=("edits",),
        outputs={"out": {"directory": str(folder / "out"), "format": "jsonl"}},
    )
    start = StartPoint(
        origin="sp-1", checkpoint=Path("unused"), batch=FORKED_AT, identity=parent
    )
    child = replace(forked(start, fork, began="now"), job_id=f"id-{fork}")
    for identity, first, files in ((parent, 0, LAST), (child, FORKED_AT + 1, LAST + 1)):
        _add(settings, registry, identity, folder)
        directory = JobDirectory(settings.storage, identity.name)
        _checkpoint(directory.checkpoint, files)
        log = FileSinkLog(
            folder / f"out{identity.output_suffix}",
            job_id=identity.job_id,
            job_name=identity.name,
            sink_uid="out",
            file_format="jsonl",
            timeline=identity.timeline,
        )
        log.open()
        for epoch in range(first, LAST + 1):
            numbers = [10 * epoch, 10 * epoch + 1, identity.name]
            _write(log, epoch, [value.format(n=number) for number in numbers])
    return folder


def _add(settings: Any, registry: Registry, identity: JobIdentity, folder: Path) -> None:
    directory = JobDirectory(settings.storage, identity.name)
    directory.logs.mkdir(parents=True)
    directory.save(identity)
    app = folder / f"{identity.name}.py"
    app.write_text(APP.format(name=identity.name))
    now = datetime.now(UTC)
    row = registry.register_job(
        identity.name,
        {
            "directory": str(directory.path),
            "launch": {"app": str(app), "directory": str(folder)},
            "parallelism": 2,
            "checkpoint": {"interval": "10 s", "backend": "heap"},
        },
    )
    attempt = registry.start_attempt(row.id, os.getpid(), socket.gethostname(), now, {})
    registry.save_epochs(
        row.id,
        [
            EpochRecord(
                epoch=number,
                attempt=1,
                status=EpochStatus.COMMITTED,
                started=now,
                ended=now,
                state={"sum": StateSize(rows=number, bytes=100 * number)},
            )
            for number in range(LAST + 1)
        ],
    )
    registry.end_attempt(attempt.id, RunState.SUSPENDED, now)


def _checkpoint(checkpoint: Path, files: int) -> None:
    """As Spark would have left it, without state; so many files were read."""
    for folder in ("offsets", "commits", "sources/edits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"q"}')
    head = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}}
    for batch in range(LAST + 1):
        offset = f'edits:{{"logOffset":{files - 1}}}'
        (checkpoint / "offsets" / str(batch)).write_text(f"v2\n{json.dumps(head)}\n{offset}")
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for batch in range(files):
        entry = {"path": f"file:///in/{batch}.jsonl", "timestamp": batch, "batchId": batch}
        path = checkpoint / "sources" / "edits" / str(batch)
        path.write_text(f"v1\n{json.dumps(entry)}")


def _write(log: FileSinkLog, epoch: int, values: Sequence[str]) -> None:
    staging = log.begin(epoch)
    path = staging / "task-0"
    path.write_text("".join(json.dumps({"user": value}) + "\n" for value in values))
    staged = StagedFile(name=path.name, rows=len(values), bytes=path.stat().st_size)
    log.commit(epoch, staging, [staged])
