"""Where a job of the registry lies, and whether somebody runs it."""

from __future__ import annotations

from pathlib import Path

from holdfast.checkpoint.identity import JobDirectory
from holdfast.control.registry import JobRow
from holdfast.storage.processes import is_alive


def directory_of(row: JobRow) -> JobDirectory:
    return JobDirectory.at(Path(row.spec["directory"]))


def is_running(row: JobRow) -> bool:
    lease = directory_of(row).lease.read()
    return (
        lease is not None and bool(lease.owner) and is_alive(lease.pid, lease.process_started)
    )
