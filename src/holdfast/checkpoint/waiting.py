"""Files that a source has and its job has not read yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from holdfast.checkpoint.source_log import newest_entry
from holdfast.checkpoint.spark_files import committed_batches, read_start
from holdfast.errors import HoldfastError


@dataclass(frozen=True, kw_only=True)
class Waiting:
    files: int
    seconds: float
    """How long the oldest of them has been there."""


def waiting_files(checkpoint: Path, now: float) -> dict[str, Waiting]:
    """By source, as Spark names it, for sources of files that have been read from.

    A file counts as read if it is not younger than the youngest that was: that is the order in
    which Spark reads them. `now` is in seconds since 1970.
    """
    try:
        batches = committed_batches(checkpoint)
        sources = read_start(checkpoint, batches[-1]).sources if batches else ()
    except HoldfastError:
        return {}  # a figure for people; the job itself will say what is wrong
    found = {}
    for source in sources:
        if source.log_offset is None:
            continue
        try:
            entry = newest_entry(checkpoint / "sources" / source.name, source.log_offset)
        except HoldfastError:
            continue
        if entry is not None:
            found[source.name] = _younger(entry, now)
    return found


def _younger(entry: Mapping[str, Any], now: float) -> Waiting:
    folder = Path(unquote(urlparse(entry["path"]).path)).parent
    times = []
    try:
        with os.scandir(folder) as files:
            for file in files:
                if file.name[0] in "._" or not file.is_file():
                    continue
                modified = file.stat().st_mtime
                if int(modified * 1000) > entry["timestamp"]:
                    times.append(modified)
    except OSError:
        return Waiting(files=0, seconds=0.0)
    return Waiting(files=len(times), seconds=max(0.0, now - min(times, default=now)))
