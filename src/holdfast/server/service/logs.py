"""Logs of attempts and supervisors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.client import models
from holdfast.control.redaction import redacted_text
from holdfast.control.running import directory_of
from holdfast.errors import NotFoundError
from holdfast.server.service.backend import Backend

MOST_LINES = 5000
_LONGEST_LINE = 10_000
_CHUNK = 64 * 1024


class LogService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def tail(
        self,
        job: str,
        *,
        attempt: int | None = None,
        supervisor: bool = False,
        lines: int = 200,
    ) -> models.LogTail:
        """The last lines; secrets in them are hidden."""
        path = self.path(job, attempt=attempt, supervisor=supervisor)
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            found = last_lines(file, min(lines, MOST_LINES))
        return models.LogTail(
            job=job,
            file=path.name,
            size=size,
            lines=[redacted_text(line[:_LONGEST_LINE]) for line in found],
        )

    def whole(
        self, job: str, *, attempt: int | None = None, supervisor: bool = False
    ) -> tuple[str, Iterator[str]]:
        """The name of the file, and its lines."""
        path = self.path(job, attempt=attempt, supervisor=supervisor)

        def read() -> Iterator[str]:
            with opened(path) as file:
                for line in file:
                    yield redacted_text(line.decode("utf-8", "replace"))

        return f"{job}-{path.name}", read()

    def path(self, job: str, *, attempt: int | None = None, supervisor: bool = False) -> Path:
        row = self._backend.job(job)
        if "directory" not in row.spec:
            raise _no_log(job)
        directory = directory_of(row)
        if supervisor:
            found = directory.logs / "supervisor.log"
        else:
            numbers = [each.number for each in self._backend.registry.attempts(row.id)]
            found = directory.attempt_log(attempt or max(numbers, default=0))
        if not found.is_file() or found.is_symlink():
            raise _no_log(job)
        return found


def opened(path: Path) -> BinaryIO:
    """A link that was planted there meanwhile is not followed."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def last_lines(file: BinaryIO, count: int) -> list[str]:
    """Reads from the end: a log may have gigabytes."""
    at, data = file.seek(0, os.SEEK_END), b""
    while at > 0 and data.count(b"\n") <= count and len(data) < count * _LONGEST_LINE:
        step = min(_CHUNK, at)
        at -= step
        file.seek(at)
        data = file.read(step) + data
    lines = data.decode("utf-8", "replace").splitlines()
    return lines[-count:] if count else []


def _no_log(job: str) -> NotFoundError:
    return NotFoundError(
        "LOG_NOT_FOUND",
        f"job {job!r} has no such log.",
        fix="a job has one per attempt, and a detached one has its supervisor's.",
    )
