"""A home with a past: jobs, attempts, epochs, savepoints and operations that never were,
written by the same classes that write real ones."""

from __future__ import annotations

import hashlib
import math
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import (
    EpochRecord,
    EpochStatus,
    JobEvent,
    SinkResult,
    StateSize,
)
from holdfast.checkpoint.timelines import Timeline
from holdfast.control.registry import JobRow, Registry, RunState
from holdfast.control.tracked.log import OperationLog
from holdfast.errors import DataError, EnvironmentProblem, HoldfastError
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.settings import load_settings
from holdfast.storage.files import write_json

BALANCES = {
    "kind": "process",
    "keys": [["user", "string"]],
    "variables": {"total": "value bigint"},
    "detail": "heap",
}


class History:
    """Jobs of one home. They "run" as long as this is open: this process holds their leases."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.settings = load_settings(home=home).values
        self.registry = Registry(self.settings.registry_url)
        self.registry.ensure_schema()
        self.now = datetime.now(UTC)
        self._held = ExitStack()

    def close(self) -> None:
        self._held.close()
        self.registry.close()

    def job(
        self,
        name: str,
        state: RunState = RunState.RUNNING,
        *,
        epochs: int = 60,
        attempts: Sequence[HoldfastError] = (),
        rows: int = 1200,
        lag: int = 0,
        sources: Sequence[str] = ("edits",),
        steps: Mapping[str, int] | None = None,
        sinks: Sequence[str] = ("out",),
        timelines: Sequence[Timeline] = (Timeline(),),
        interval: float = 10.0,
        late: int = 0,
    ) -> JobRow:
        """`attempts`: how the ones before the last one ended."""
        steps = {"balances": 48_210} if steps is None else steps
        directory = JobDirectory(self.settings.storage, name)
        directory.logs.mkdir(parents=True)
        directory.save(
            JobIdentity(
                job_id=hashlib.sha256(name.encode()).hexdigest()[:12],
                name=name,
                parallelism=4,
                key_groups=64,
                code="3f9c2ab",
                operators=dict.fromkeys(steps, BALANCES),
                sources=tuple(sources),
                locations={uid: f"/data/{uid}" for uid in sources},
                outputs={
                    uid: {"directory": f"/data/out/{uid}", "format": "parquet"} for uid in sinks
                },
                edges=_edges(sources, list(steps), sinks),
                timelines=tuple(timelines),
                timeline=timelines[-1].name,
            )
        )
        app = self.home / "jobs" / f"{name}.py"
        app.parent.mkdir(exist_ok=True)
        app.write_text(f'import holdfast as hf\njob = hf.Job("{name}", parallelism=4)\n')
        row = self.registry.register_job(
            name,
            {
                "directory": str(directory.path),
                "launch": {"app": str(app), "directory": str(self.home)},
                "parallelism": 4,
                "checkpoint": {"interval": f"{interval:g} s", "backend": "heap"},
            },
        )
        self._attempts(row, directory, state, attempts, epochs, interval)
        last = len(attempts) + 1
        records = [
            self._epoch(
                number, epochs, interval, rows, lag, sources, steps, sinks, late, attempt=last
            )
            for number in range(epochs)
        ]
        if attempts and epochs > 5:
            cut = epochs // 2
            records = [replace(each, attempt=last - 1) for each in records[:cut]] + [
                replace(
                    records[cut],
                    attempt=last - 1,
                    status=EpochStatus.INTERRUPTED,
                    ended=None,
                    phases={},
                ),
                *records[cut:],
            ]
        self.registry.save_epochs(row.id, records)
        if state.is_active:
            lease = directory.lease.acquire()
            self._held.callback(directory.lease.release, lease)
        return self.registry.job(name)

    def _attempts(
        self,
        row: JobRow,
        directory: JobDirectory,
        state: RunState,
        failures: Sequence[HoldfastError],
        epochs: int,
        interval: float,
    ) -> None:
        begin = self.now - timedelta(seconds=epochs * interval + 40)
        for number, failure in enumerate(failures):
            at = begin + timedelta(seconds=number * 60)
            earlier = self.registry.start_attempt(
                row.id,
                4000 + number,
                socket.gethostname(),
                at,
                {"from": "its last epoch", "code": "3f9c2ab"},
            )
            directory.attempt_log(earlier.number).write_text(f"{failure.name}\n")
            self.registry.end_attempt(
                earlier.id, RunState.FAILED, at + timedelta(seconds=45), failure
            )
        started = begin + timedelta(seconds=len(failures) * 60)
        attempt = self.registry.start_attempt(
            row.id,
            os.getpid(),
            socket.gethostname(),
            started,
            {"from": "its last epoch", "code": "3f9c2ab"},
        )
        lines = [
            f"{started + timedelta(seconds=at):%H:%M:%S} INFO epoch committed epoch={at}"
            for at in range(160)
        ]
        lines[70] = lines[70].replace("INFO epoch committed", "WARN falling behind")
        directory.attempt_log(attempt.number).write_text("\n".join(lines) + "\n")
        if state.is_active:
            self.registry.set_state(row.id, state)
            return
        failed: HoldfastError | None = None
        if state is RunState.FAILED:
            failed = DataError(
                "RECORD_NOT_PARSED",
                "source 'edits': record at offset 18,204 of edits-3 is not JSON.",
                fix='say what to do with such records: on_bad_record="skip".',
            )
        self.registry.end_attempt(attempt.id, state, self.now - timedelta(minutes=9), failed)

    def _epoch(
        self,
        number: int,
        epochs: int,
        interval: float,
        rows: int,
        lag: int,
        sources: Sequence[str],
        steps: Mapping[str, int],
        sinks: Sequence[str],
        late: int,
        *,
        attempt: int,
    ) -> EpochRecord:
        started = self.now - timedelta(seconds=(epochs - number) * interval)
        wave = 1 + 0.35 * math.sin(number / 3.1) + 0.15 * math.sin(number * 1.7)
        read = int(rows * wave)
        seconds = 0.6 + wave * 0.9
        full = number % 10 == 9
        grown = (number + 1) / epochs
        return EpochRecord(
            epoch=number,
            attempt=attempt,
            status=EpochStatus.COMMITTED,
            started=started,
            ended=started + timedelta(seconds=seconds),
            phases={
                "offsets": 0.04,
                "wal": 0.02,
                "plan": 0.11,
                "execute": round(seconds - 0.22, 3),
                "commit": 0.05,
                "sinks": round((seconds - 0.22) * 0.7, 3),
                "workers": 0.0,
                "load": 0.0,
            },
            input_rows=read * len(sources),
            output_rows=read,
            bytes_written=read * 38,
            checkpoint_bytes=int(1.6e6 * grown + 4e5) if full else int(22_000 * wave),
            checkpoint_kind="full" if full else "incremental",
            state={
                uid: StateSize(rows=int(keys * grown), bytes=int(keys * grown * 74))
                for uid, keys in steps.items()
            },
            sinks={uid: SinkResult(rows=read, bytes=read * 38, files=2) for uid in sinks},
            watermark=started - timedelta(seconds=30),
            late=dict.fromkeys(list(steps)[:1], late) if late else {},
            waited_for={uid: at == 0 for at, uid in enumerate(sources)},
            offsets={
                uid: {"edits-0": 400 * number, "edits-1": 380 * number} for uid in sources
            },
            lag={uid: int(lag * (0.2 + 0.8 * grown)) for uid in sources}
            if lag
            else dict.fromkeys(sources, 0),
        )

    def events(self, row: JobRow, *texts: str) -> None:
        for at, text in enumerate(texts):
            self.registry.add_event(
                row.id,
                JobEvent(
                    at=self.now - timedelta(minutes=len(texts) - at), kind="note", text=text
                ),
            )

    def savepoint(
        self,
        job: str,
        name: str,
        totals: Mapping[str, int],
        *,
        label: str = "",
        epoch: int = 7,
        timeline: str = "t0",
        parent: str | None = None,
        minutes_ago: float = 60,
    ) -> None:
        """A canonical one: it can be looked into without Spark."""
        identity = JobDirectory(self.settings.storage, job).load()
        assert identity is not None
        path = self.settings.savepoints / job / name
        state = CanonicalState(path)
        state.rows("balances").mkdir(parents=True)
        table = pa.table({"user": list(totals), "total": list(totals.values())})
        pq.write_table(table, state.rows("balances") / "part-0.parquet")
        files = tuple(
            SavedFile(
                path=str(file.relative_to(path)),
                size=file.stat().st_size,
                sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            )
            for file in sorted(path.rglob("*"))
            if file.is_file()
        )
        known = [each for each in identity.timelines if int(each.name[1:]) <= int(timeline[1:])]
        manifest = Manifest(
            id=name,
            kind="canonical",
            created=self.now - timedelta(minutes=minutes_ago),
            epoch=epoch,
            identity=replace(identity, timeline=timeline, timelines=tuple(known)),
            sources={"edits": {"logOffset": epoch}},
            keys={"balances": len(totals)},
            label=label,
            files=files,
            parent=parent,
            holdfast="0.1.0",
            spark="4.3.0",
        )
        write_json(path / MANIFEST, manifest.to_dict())

    def operation(
        self,
        job: str,
        kind: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
        error: HoldfastError | None = None,
    ) -> str:
        log = OperationLog(self.registry)
        operation, _ = log.add(
            job, kind, parameters or {}, asked_by="operator", exclusive=False
        )
        if error is not None:
            log.fail(operation.id, error)
        elif result is not None:
            log.succeed(operation.id, result)
        return operation.id


LOST = EnvironmentProblem(
    "DRIVER_LOST",
    "the driver was ended by signal 9 in the middle of epoch 30.",
    fix="nothing: the job was started again from its last committed epoch.",
)


def showcase(home: Path) -> History:
    """What the pictures show."""
    made = History(home)
    wiki = made.job(
        "wiki-diffs",
        attempts=[LOST],
        sources=("edits", "accounts"),
        steps={"balances": 48_210, "sessions": 9_120},
        sinks=("out", "late"),
        late=3,
        timelines=(
            Timeline(),
            Timeline(
                name="t1",
                parent="t0",
                epoch=24,
                origin="20261117-081500-a41c02",
                sinks="rewind",
                began=(made.now - timedelta(hours=5)).isoformat(),
            ),
        ),
    )
    made.events(wiki, "attempt 1 failed: DRIVER_LOST", "attempt 2 started from its last epoch")
    made.job(
        "hashtags",
        lag=42_000,
        rows=5200,
        sources=("messages",),
        steps={"counts": 1_204},
        sinks=("top",),
    )
    made.job(
        "page-watch", RunState.RESTARTING, attempts=[LOST, LOST], sources=("edits",), epochs=30
    )
    made.job(
        "orders-dedup", RunState.FAILED, rows=300, steps={"seen": 880_112}, sinks=("orders",)
    )
    made.job("two-speeds", RunState.SUSPENDED, epochs=12)
    made.job("backfill-2025", RunState.FINISHED, epochs=40, rows=90_000)
    made.job("sessions", rows=410, steps={"sessions": 15_090}, late=1)
    totals = {"Alice": 1204, "Bob": -310, "Chidi": 88, "Deniz": 5120, "Eleanor": 0}
    made.savepoint(
        "wiki-diffs",
        "20261117-081500-a41c02",
        totals,
        label="before the upgrade",
        epoch=24,
        minutes_ago=330,
    )
    made.savepoint(
        "wiki-diffs",
        "20261117-112040-77be19",
        totals | {"Deniz": 5200, "Farid": 12},
        label="nightly",
        epoch=41,
        timeline="t1",
        minutes_ago=140,
    )
    made.savepoint("sessions", "20261117-100000-0c0ffe", {"Alice": 3}, minutes_ago=220)
    made.operation(
        "wiki-diffs",
        "savepoint",
        parameters={"label": "nightly"},
        result={"savepoint": "20261117-112040-77be19", "epoch": 41, "keys": 6},
    )
    made.operation("orders-dedup", "resume", error=LOST)
    return made


def _edges(
    sources: Sequence[str], steps: Sequence[str], sinks: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Sources to the first step, step to step, the last one to all sinks."""
    return (
        *((source, step) for source in sources for step in steps[:1]),
        *pairwise(steps),
        *((step, sink) for step in steps[-1:] for sink in sinks),
    )
