"""Which epochs of a checkpoint can still be gone back to, and what is wrong with the others.

Every file that an epoch needs is looked at: it is there, and it has the check sums that Hadoop
wrote beside it. Spark itself does not compare those for its logs, and finds a damaged state
file when it needs it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoint.chunk_sums import whole_sum
from holdfast.checkpoint.source_log import files_up_to
from holdfast.checkpoint.spark_files import batch_files, committed_batches, damaged
from holdfast.errors import CorruptionError, NotFoundError
from holdfast.storage.at_once import at_once
from holdfast.storage.files import storage_errors

_MAGIC = b"crc\0"


@dataclass(frozen=True, kw_only=True)
class EpochHealth:
    epoch: int
    problem: CorruptionError | NotFoundError | None = None


def examine_epochs(
    checkpoint: Path, told: Callable[[int, int], None] = lambda done, total: None
) -> list[EpochHealth]:
    """All epochs that are kept, newest first."""
    sums = _Sums()
    found = []
    epochs = committed_batches(checkpoint)[::-1]
    for done, epoch in enumerate(epochs, 1):
        problem: CorruptionError | NotFoundError | None = None
        try:
            files = batch_files(checkpoint, epoch)
            for name in (*files.linked, *files.with_paths):
                sums.check(checkpoint / name)
            for source, last in files.logs.items():
                log = checkpoint / "sources" / source
                for name in files_up_to(log, last) or ():
                    sums.check(log / name)
        except (CorruptionError, NotFoundError) as error:
            problem = error
        found.append(EpochHealth(epoch=epoch, problem=problem))
        told(done, len(epochs))
    return found


def require_sums(copy: Path, original: Path) -> None:
    """Refuse a copy of a checkpoint with damaged files; they are named where they came from.

    Hashes that are made of a damaged file only prove that it stayed as it was.
    """
    summed = [
        (folder, name)
        for folder, _, names in os.walk(copy)
        for there in [frozenset(names)]
        for name in sorted(names)
        if f".{name}.crc" in there
    ]
    for (folder, _), problem in zip(summed, at_once(_differs, summed), strict=True):
        if problem is not None:
            known_as = original / Path(folder).relative_to(copy)
            raise damaged(known_as / problem.name, problem.why)


class _Sums:
    """Epochs share most of their files: each is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, CorruptionError | None] = {}

    def check(self, path: Path) -> None:
        if path not in self._known:
            self._known[path] = _problem(path)
        problem = self._known[path]
        if problem is not None:
            raise problem


def _problem(path: Path) -> CorruptionError | None:
    """What Hadoop's check sums of a file say; files that were copied may have none."""
    with storage_errors(path):
        if not path.with_name(f".{path.name}.crc").exists():
            return None
    found = _differs((str(path.parent), path.name))
    return None if found is None else damaged(path.with_name(found.name), found.why)


@dataclass(frozen=True)
class _Difference:
    name: str
    """Of the file that is wrong."""
    why: str


def _differs(file: tuple[str, str]) -> _Difference | None:
    """Whether a file of a folder has other bytes than Hadoop's check sums of it say."""
    folder, name = file
    with storage_errors(Path(folder, name)):
        sums, data = _read(f"{folder}/.{name}.crc"), _read(f"{folder}/{name}")
    if sums[:4] != _MAGIC or len(sums) < 8:
        return _Difference(f".{name}.crc", "it is not a file of check sums")
    (size,) = struct.unpack_from(">i", sums, 4)
    if whole_sum(sums[8:], size, len(data)) != zlib.crc32(data):
        return _Difference(name, "it has other bytes than were written")
    return None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - hundreds of files, and a Path takes longer
        return file.read()
