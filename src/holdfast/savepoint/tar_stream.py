"""A tar of regular files, compressed by zstd, written and read in one pass.

`tar --zstd -xf` reads what is written here. The other way round only the plain part of tar is
read: regular files, and of extended headers a path, a size and a comment. Of Python's tarfile
only the format of a header is used: its reader would follow links, believe sizes, and take
headers of any length into memory.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa

from holdfast.errors import CorruptionError, NotFoundError, shorten
from holdfast.storage.files import storage_errors

CHUNK = 1024 * 1024
_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_MAGIC = b"\x28\xb5\x2f\xfd"
_PAX_LIMIT = 64 * 1024
_PADDING_LIMIT = 1024 * 1024
"""Tars end with zeros; other programs fill up to a multiple of some kilobytes."""
_SIZE = re.compile(r"[0-9]{1,18}")
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a directory",
    tarfile.FIFOTYPE: "a pipe",
}


@dataclass(frozen=True, kw_only=True)
class Member:
    """A file in an archive, before its bytes are read."""

    name: str
    size: int
    comment: str = ""


class TarWriter:
    """Writes to a file that is open, and closes it."""

    def __init__(self, file: IO[bytes], modified: int) -> None:
        self._stream: Any = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
        self._modified = modified

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def add(self, member: Member, content: Iterable[bytes]) -> None:
        """`content` must have as many bytes as `member` says."""
        header = tarfile.TarInfo(member.name)
        header.size, header.mtime = member.size, self._modified
        if member.comment:
            header.pax_headers = {"comment": member.comment}
        self._stream.write(header.tobuf(tarfile.PAX_FORMAT))
        for chunk in content:
            self._stream.write(chunk)
        self._stream.write(bytes(-member.size % _BLOCK))

    def end(self) -> None:
        self._stream.write(_ZEROS * 2)


class TarReader:
    """Reads member by member: a header, then all of its bytes.

    Whatever is wrong is an error that names the archive. Nothing is taken into memory by the
    word of the archive: headers have a limit, and content comes in pieces.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise NotFoundError(
                "ARCHIVE_NOT_FOUND",
                f"{path} does not exist.",
                fix="check the path; `holdfast savepoint export` writes archives.",
                path=str(path),
            )
        _require_zstd(path)
        with storage_errors(path):
            self._stream: Any = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def next(self) -> Member | None:
        """The header of the next file; None at the archive's end, which nothing may follow."""
        block = self._exactly(_BLOCK)
        if block == _ZEROS and self._begun:
            self._require_end()
            return None
        header = self._header(block)
        self._begun = True
        records = {}
        if header.type == tarfile.XHDTYPE:
            records = self._extended(header.size)
            header = self._header(self._exactly(_BLOCK))
        name = records.get("path", header.name)
        if header.type != tarfile.REGTYPE:
            kind = _KINDS.get(header.type, f"of the kind {header.type!r}")
            raise refused(self.path, f"{shorten(name)} in it is {kind}, not a file")
        size = int(records["size"]) if "size" in records else header.size
        return Member(name=name, size=size, comment=records.get("comment", ""))

    def content(self, member: Member) -> Iterator[bytes]:
        """All bytes of the member that `next` has returned."""
        left = member.size
        while left > 0:
            chunk = self._exactly(min(left, CHUNK))
            left -= len(chunk)
            yield chunk
        self._exactly(-member.size % _BLOCK)

    def _header(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.TarError, UnicodeDecodeError) as error:
            if not self._begun:
                raise not_an_archive(self.path, "what is compressed in it is no tar") from error
            raise damaged(self.path, f"a header in it cannot be read ({error})") from error

    def _extended(self, size: int) -> dict[str, str]:
        """Records `length key=value`, one after the other."""
        if not 0 < size <= _PAX_LIMIT:
            raise refused(self.path, f"an extended header in it has {size} bytes")
        text = self._exactly(size + -size % _BLOCK)[:size]
        found: dict[str, str] = {}
        while text:
            try:
                key, value, length = _record(text)
            except ValueError as error:
                raise damaged(self.path, "an extended header in it cannot be read") from error
            known = key in ("path", "comment") or (key == "size" and _SIZE.fullmatch(value))
            if not known or key in found:
                what = shorten(f"{key}={value}")
                raise refused(self.path, f"it has the extended header {what}")
            found[key] = value
            text = text[length:]
        return found

    def _require_end(self) -> None:
        if self._exactly(_BLOCK) != _ZEROS:
            raise damaged(self.path, "its end is only half there")
        left = _PADDING_LIMIT
        while chunk := self._read(CHUNK):
            left -= len(chunk)
            if left < 0 or chunk.strip(b"\0"):
                raise refused(self.path, "it goes on after its end")

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            chunk = self._read(size - len(found))
            if not chunk:
                raise damaged(self.path, "it is cut short")
            found += chunk
        return found

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            # pyarrow has one exception for what the system refuses and for odd bytes.
            if error.errno is not None:
                with storage_errors(self.path):
                    raise
            if "truncated" in str(error).lower():
                raise damaged(self.path, "it is cut short") from error
            raise damaged(self.path, f"it cannot be decompressed ({error})") from error


def _record(text: bytes) -> tuple[str, str, int]:
    """Key and value of the first record, and its length; ValueError: it is none."""
    length = int(text[: text.index(b" ")])
    record = text[:length]
    if len(record) != length or not record.endswith(b"\n"):
        raise ValueError(record)
    key, _, value = record[:-1].decode().partition(" ")[2].partition("=")
    return key, value, length


def _require_zstd(path: Path) -> None:
    if not path.is_file():
        raise not_an_archive(path, "it is no file")
    with storage_errors(path), path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start != _MAGIC:
        raise not_an_archive(path, "it is not compressed by zstd" if start else "it is empty")


def not_an_archive(path: Path, cause: str) -> CorruptionError:
    return CorruptionError(
        "NOT_AN_ARCHIVE",
        f"{path} is not the archive of a savepoint: {cause}.",
        fix="give a file that `holdfast savepoint export` wrote.",
        path=str(path),
    )


def damaged(path: Path, cause: str) -> CorruptionError:
    return CorruptionError(
        "ARCHIVE_DAMAGED",
        f"the archive {path} is not what was exported: {cause}.",
        fix="copy it again and compare the sizes, or export the savepoint again.",
        path=str(path),
    )


def refused(path: Path, cause: str) -> CorruptionError:
    return CorruptionError(
        "ARCHIVE_REFUSED",
        f"the archive {path} holds what no export writes: {cause}.",
        fix="do not use it, unless you know who made it; export the savepoint again.",
        path=str(path),
    )
