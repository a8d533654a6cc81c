"""Tells Prometheus where the supervisors listen: a file per job, which it watches (file_sd).

Ports change with every start. The instance is named after the job, so that its series go on.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.files import make_directory, storage_errors, write_json
from holdfast.types import check_name

FOLDER = "metrics"
"""In the home directory; where `deploy/prometheus/prometheus.yml` looks."""


def target_file(directory: Path, job: str) -> Path:
    return directory / f"{check_name(job, 'job name')}.json"


def write_target(directory: Path, job: str, port: int, host: str = "127.0.0.1") -> Path:
    """Say in `directory` (:data:`FOLDER` of the home) that the metrics of a job are there."""
    file = target_file(directory, job)
    make_directory(directory)
    write_json(file, [{"targets": [f"{host}:{port}"], "labels": {"instance": job}}])
    return file


def remove_target(directory: Path, job: str) -> None:
    """The job's supervisor has ended; it is no error if that was said before."""
    file = target_file(directory, job)
    with storage_errors(file):
        file.unlink(missing_ok=True)
