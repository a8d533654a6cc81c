"""Which epochs of a checkpoint can still be gone back to, and what is wrong with the others.

Every file that an epoch needs is looked at: it is there, and it has the check sums that Hadoop
wrote beside it. Spark itself does not compare those for its logs, and finds a damaged state
file when it needs it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoint.chunk_sums import whole_sum
from holdfast.checkpoint.source_log import files_up_to
from holdfast.checkpoint.spark_files import batch_files, committed_batches, damaged
from holdfast.errors import CorruptionError, NotFoundError
from holdfast.storage.digests import Digest
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


def require_sums(digests: Mapping[str, Digest], copy: Path, original: Path) -> None:
    """Refuse a copy of a checkpoint with damaged files; they are named where they came from.
    `digests` are those of its files, by their paths in it.

    Hashes that are made of a damaged file only prove that it stayed as it was.
    """
    for name, digest in sorted(digests.items()):
        folder, slash, last = name.rpartition("/")
        beside = f"{folder}{slash}.{last}.crc"
        if beside not in digests:
            continue  # files that were written anew have none
        with storage_errors(copy / beside):
            sums = (copy / beside).read_bytes()
        problem = _difference(original / name, sums, digest.size, digest.crc32)
        if problem is not None:
            raise problem


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
    beside = path.with_name(f".{path.name}.crc")
    with storage_errors(path):
        if not beside.exists():
            return None
        sums, data = beside.read_bytes(), path.read_bytes()
    return _difference(path, sums, len(data), zlib.crc32(data))


def _difference(path: Path, sums: bytes, size: int, crc32: int) -> CorruptionError | None:
    """What is wrong with a file of this size and CRC-32, or with Hadoop's sums of it."""
    if sums[:4] != _MAGIC or len(sums) < 8:
        beside = path.with_name(f".{path.name}.crc")
        return damaged(beside, "it is not a file of check sums")
    (part,) = struct.unpack_from(">i", sums, 4)
    if whole_sum(sums[8:], part, size) != crc32:
        return damaged(path, "it has other bytes than were written")
    return None
