"""What there is to see of a job: where its sources stand, what its sinks have got, whether it
lives. The command line, REST and the web pages all show these."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.kafka_positions import lag_of
from holdfast.checkpoint.record import EpochRecord, EpochStatus, SinkResult
from holdfast.errors import HoldfastError
from holdfast.event_time.idleness import watermark_doings

if TYPE_CHECKING:  # what the command line needs at once must not load SQLAlchemy
    from holdfast.control.registry import AttemptRow, JobRow


def measured(records: Iterable[EpochRecord]) -> list[EpochRecord]:
    """Committed epochs that have numbers: nobody was left to take those of one that a crash has
    interrupted after its commit."""
    return [
        record
        for record in records
        if record.status is EpochStatus.COMMITTED and record.ended is not None
    ]


def per_second(rows: int, epochs: Sequence[EpochRecord]) -> float | None:
    """From the start of the first to the end of the last: the pauses count."""
    if not epochs or epochs[-1].ended is None:
        return None
    seconds = (epochs[-1].ended - epochs[0].started).total_seconds()
    return rows / seconds if seconds > 0 else None


def source_rows(committed: Sequence[EpochRecord]) -> list[dict[str, Any]]:
    """Where each source stands, from committed epochs, oldest first."""
    if not committed:
        return []
    last = committed[-1]
    moved = {uid: _last_moved(uid, committed) for uid in last.offsets}
    doings = watermark_doings(moved, last.waited_for)
    return [
        {
            "source": uid,
            "position": position,
            "lag": last.lag.get(uid),
            "lags": lag_of(position, last.latest.get(uid)),
            "epoch": last.epoch,
            "moved": moved[uid],
            "watermark": doings.get(uid),
        }
        for uid, position in last.offsets.items()
    ]


def _last_moved(uid: str, committed: Sequence[EpochRecord]) -> datetime | None:
    """When a source last had something new."""
    for before, after in zip(committed[-2::-1], committed[:0:-1], strict=True):
        if before.offsets.get(uid) != after.offsets.get(uid):
            return after.started
    return committed[0].started if committed[0].epoch == 0 else None


def sink_rows(
    committed: Sequence[EpochRecord], totals: Mapping[str, SinkResult]
) -> list[dict[str, Any]]:
    """What each sink has got in all epochs."""
    last = committed[-1] if committed else None
    return [
        {
            "sink": uid,
            "epoch": last.epoch if last and uid in last.sinks else None,
            "rows": total.rows,
            "bytes": total.bytes,
            "files": total.files,
        }
        for uid, total in totals.items()
    ]


def heap_limit_of(job: JobRow, limit: int) -> int | None:
    """What the heap backend may hold in all workers together; other backends have none."""
    if job.spec.get("checkpoint", {}).get("backend", "heap") != "heap":
        return None
    return limit * (job.spec.get("parallelism") or os.cpu_count() or 1)


def came_from(row: JobRow) -> str | None:
    """What a job goes on from, if it was forked or taken back."""
    from holdfast.checkpoint.identity import JobDirectory

    identity = None
    with suppress(HoldfastError, KeyError):
        identity = JobDirectory.at(Path(row.spec["directory"])).load()
    if identity is None:
        return None
    if identity.fork is not None:
        return identity.fork.sentence
    return identity.timelines[-1].origin or None


def process_is_there(job: JobRow, attempt: AttemptRow | None) -> bool | None:
    """Whether the process of a job that should have one is there; None if unknown.

    After kill -9 nobody is left to write the end into the registry.
    """
    if attempt is None or not job.state.is_active or attempt.host != socket.gethostname():
        return None
    try:
        os.kill(attempt.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, but it is somebody else's
        return True
    return True
