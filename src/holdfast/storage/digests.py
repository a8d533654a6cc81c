"""What a file holds, found out in one reading."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from holdfast.storage.files import storage_errors

_AT_A_TIME = 256 * 1024
"""Stays in the processor's cache for both sums."""


@dataclass(frozen=True)
class Digest:
    size: int
    sha256: str
    crc32: int


def digest(path: Path, *, flush: bool = False) -> Digest:
    """`flush`: and bring its bytes to the disk, whoever wrote them."""
    sha256, crc32, size = hashlib.sha256(), 0, 0
    with storage_errors(path), path.open("rb", buffering=0) as file:
        # Most files are small: as much memory as they need.
        room = max(1, min(_AT_A_TIME, os.fstat(file.fileno()).st_size))
        buffer = memoryview(bytearray(room))
        while count := file.readinto(buffer):
            part = buffer[:count]
            sha256.update(part)
            crc32 = zlib.crc32(part, crc32)
            size += count
        if flush:
            os.fsync(file.fileno())
    return Digest(size, sha256.hexdigest(), crc32)
