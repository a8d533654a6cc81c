"""Where a sink notes which epochs it has."""

from __future__ import annotations

from pathlib import Path

from holdfast.sinks import Files, Sink
from holdfast.storage.file_sink_log import FileSinkLog


def log_of(
    uid: str, sink: Sink, *, job_id: str, job_name: str, timeline: str, fence: int = 0
) -> FileSinkLog | None:
    """The commit log of a sink; None if it keeps nothing."""
    if not isinstance(sink, Files):
        return None
    return FileSinkLog(
        directory_of(sink),
        job_id=job_id,
        job_name=job_name,
        sink_uid=uid,
        file_format=file_format(sink),
        timeline=timeline,
        fence=fence,
    )


def directory_of(sink: Files) -> Path:
    return Path(sink.path).expanduser().absolute()


def file_format(sink: Files) -> str:
    """As its log calls it."""
    return "jsonl" if sink.format == "json" else "parquet"
