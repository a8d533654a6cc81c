"""The log of a source of files: which files it has seen, in which of its own batches.

Spark writes an entry per batch (`7`), and every tenth (`9.compact`) repeats all before it, so
that the older ones can be deleted. An older position may therefore lie inside a later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.checkpoint.spark_files import damaged
from holdfast.errors import CorruptionError
from holdfast.storage.files import list_names, storage_errors

_COMPACT = ".compact"
_EVERY = 10
_VERSION = "v1"


def files_up_to(log: Path, last: int) -> list[str] | None:
    """The files that hold the log up to `last` and no more; None: they must be made."""
    names = set(list_names(log))
    compact = max(
        (number for number in _compacted(names) if number <= last),
        default=None,
    )
    first = 0 if compact is None else compact + 1
    wanted = [str(number) for number in range(first, last + 1)]
    if any(name not in names for name in wanted):
        return None
    return wanted if compact is None else [f"{compact}{_COMPACT}", *wanted]


def rebuilt(
    log: Path, last: int, moved: Callable[[str], str] = lambda path: path
) -> dict[str, bytes]:
    """The log up to `last` put together from what is there, as new files by name.

    `moved` says where a file of the input lies now.
    """
    entries = _entries(log, last)
    missing = set(range(last + 1)) - set(entries)
    if missing:
        raise CorruptionError(
            "SOURCE_LOG_INCOMPLETE",
            f"{log} does not say which files were read in its batch {min(missing)}.",
            fix="choose a newer epoch, or a savepoint.",
            path=str(log),
        )
    for found in entries.values():
        for entry in found:
            entry["path"] = moved(entry["path"])
    boundary = (last + 1) // _EVERY * _EVERY - 1
    files = {}
    if boundary >= 0:
        together = [entry for number in range(boundary + 1) for entry in entries[number]]
        files[f"{boundary}{_COMPACT}"] = _encoded(together)
    for number in range(boundary + 1, last + 1):
        files[str(number)] = _encoded(entries[number])
    return files


def newest_entry(log: Path, last: int) -> dict[str, Any] | None:
    """The youngest of the files that were read last."""
    for name in (str(last), f"{last}{_COMPACT}"):
        if (log / name).exists():
            read = [entry for entry in _read(log / name) if entry["batchId"] == last]
            return max(read, key=lambda entry: entry["timestamp"], default=None)
    return None


def paths_up_to(log: Path, last: int) -> set[str]:
    """The files that were read up to `last`."""
    return {entry["path"] for found in _entries(log, last).values() for entry in found}


def _entries(log: Path, last: int) -> dict[int, list[dict[str, Any]]]:
    """What was read in each batch up to `last`."""
    names = set(list_names(log))
    found: dict[int, list[dict[str, Any]]] = {}
    for number in sorted(_compacted(names)):
        # Each repeats what the ones before it say.
        found = {}
        for entry in _read(log / f"{number}{_COMPACT}"):
            if entry["batchId"] <= last:
                found.setdefault(entry["batchId"], []).append(entry)
        if number >= last:
            return found
    for number in range(last + 1):
        if str(number) in names:
            found[number] = _read(log / str(number))
    return found


def _compacted(names: set[str]) -> list[int]:
    return [int(name.removesuffix(_COMPACT)) for name in names if name.endswith(_COMPACT)]


def _read(path: Path) -> list[dict[str, Any]]:
    with storage_errors(path):
        lines = path.read_text(encoding="utf-8").splitlines()
    try:
        if lines[0] != _VERSION:
            raise ValueError(f"version {lines[0]!r}")  # noqa: TRY301
        return [json.loads(line) for line in lines[1:]]
    except (IndexError, ValueError) as error:
        raise damaged(path, error) from error


def _encoded(entries: list[dict[str, Any]]) -> bytes:
    lines = [json.dumps(entry, separators=(",", ":")) for entry in entries]
    return "\n".join([_VERSION, *lines]).encode()
