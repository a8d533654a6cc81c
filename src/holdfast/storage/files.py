"""File access that a crash cannot leave half done, on a POSIX file system.

A file appears under its name only when its bytes are on disk, and a name that has been
given is durable when the call returns. Whatever the system refuses comes out as an
:class:`EnvironmentProblem` that names the path and a way out.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError, CorruptionError, EnvironmentProblem, NotFoundError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_REMOVE_ATTEMPTS = 5
_LOCK_POLL_SECONDS = 0.01


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` under `path`: readers see the old content or the new, never a mix."""
    with storage_errors(path):
        temporary = _write_temporary(path, data, path.parent)
        try:
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_dir(path.parent)


def create_exclusive(
    path: Path, data: bytes, *, scratch: Path | None = None, modified_ns: int | None = None
) -> bool:
    """Create `path` with `data`; False, and nothing changed, if the name is taken.

    Of several callers exactly one gets True. The temporary file lies next to `path`, or in
    `scratch`, a directory of the same file system that is thrown away after a crash.
    `modified_ns`: the time of modification that it is to have.
    """
    with storage_errors(path):
        temporary = _write_temporary(path, data, scratch or path.parent)
        try:
            if modified_ns is not None:
                os.utime(temporary, ns=(modified_ns, modified_ns))
            # A rename would overwrite; a hard link fails if the name exists.
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        fsync_dir(path.parent)
    return True


def _write_temporary(path: Path, data: bytes, directory: Path) -> Path:
    # The leading dot hides it from Spark, pyarrow and plain `ls`.
    temporary = directory / f".{path.name}.{secrets.token_hex(6)}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, to_json_bytes(value))


def to_json_bytes(value: Any) -> bytes:
    """JSON as holdfast stores it: readable, and the same bytes for the same value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1, sort_keys=True)
    return text.encode() + b"\n"


def read_json(path: Path) -> Any:
    """Parse a stored JSON file. NotFoundError if absent, CorruptionError if it is not JSON."""
    with storage_errors(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFoundError(
                "FILE_NOT_FOUND",
                f"{path} does not exist.",
                fix="check the path; if the file was there before, restore it from a backup.",
                path=str(path),
            ) from None
    try:
        return json.loads(data)
    except ValueError as error:
        raise CorruptionError(
            "UNREADABLE_FILE",
            f"{path} is not the JSON that holdfast wrote: {error}.",
            fix="restore the file from a backup; holdfast writes it whole or not at all, so "
            "another program or the disk has changed it.",
            path=str(path),
        ) from error


def make_directory(path: Path) -> None:
    """Create `path` and its parents durably: a name is safe once its parent is synced."""
    with storage_errors(path):
        missing = [level for level in (path, *path.parents) if not level.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for level in reversed(missing):
            fsync_dir(level.parent)


def fsync_file(path: Path) -> None:
    """Bring the bytes of a file that another process wrote to the disk."""
    _fsync(path, os.O_RDONLY)


def fsync_dir(path: Path) -> None:
    """Bring the names in a directory to the disk."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    with storage_errors(path):
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def list_names(path: Path) -> list[str]:
    """The names in a directory, sorted, hidden ones left out; none if it does not exist."""
    with storage_errors(path):
        try:
            return sorted(name for name in os.listdir(path) if not name.startswith("."))  # noqa: PTH208 - 100k names, no Path objects
        except FileNotFoundError:
            return []


def size_of(path: Path) -> int | None:
    """The size of a file (of the link itself, if it is one), None if there is none."""
    with storage_errors(path):
        try:
            return path.lstat().st_size
        except FileNotFoundError:
            return None


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it. A symlink is removed, never followed."""
    with storage_errors(path):
        for attempt in range(_REMOVE_ATTEMPTS):
            try:
                if path.is_symlink() or path.is_file():
                    path.unlink()
                else:
                    shutil.rmtree(path)
            except FileNotFoundError:
                if not os.path.lexists(path):
                    return
            except OSError as error:
                # A task of a dead attempt may still be writing into it.
                if error.errno != errno.ENOTEMPTY or attempt == _REMOVE_ATTEMPTS - 1:
                    raise


@contextmanager
def exclusive_lock(path: Path, *, timeout: float = 30.0) -> Iterator[None]:
    """Hold the lock file `path` between processes; the system frees it when its holder dies."""
    with storage_errors(path):
        file = path.open("ab")
    with file:
        deadline = time.monotonic() + timeout
        while not _try_lock(file.fileno(), path):
            if time.monotonic() > deadline:
                raise ConflictError(
                    "LOCKED",
                    f"another process has held {path} for more than {timeout:g} s.",
                    fix="find it with `fuser` or `lsof` on that file; if it hangs, end it: the "
                    "lock goes with the process.",
                    path=str(path),
                )
            time.sleep(_LOCK_POLL_SECONDS)
        yield  # closing the file releases the lock


def _try_lock(descriptor: int, path: Path) -> bool:
    with storage_errors(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the system refuses into a named problem."""
    try:
        yield
    except OSError as error:
        raise _problem(path, error) from error


def _problem(path: Path, error: OSError) -> EnvironmentProblem:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        mount = _mount_of(path)
        free = _free_bytes(mount)
        return EnvironmentProblem(
            "DISK_FULL",
            f"cannot write {path}: {reason}; {_readable(free)} free on {mount}.",
            fix=f"free space on {mount} (or raise the quota) and start again; nothing "
            "half-written has become visible.",
            path=str(path),
            mount=str(mount),
            free_bytes=free,
        )
    if error.errno in _FORBIDDEN:
        return EnvironmentProblem(
            "PERMISSION_DENIED",
            f"no permission for {path}: {reason}.",
            fix=f"give user {os.geteuid()} read and write access to {path.parent}, or choose "
            "another directory.",
            path=str(path),
        )
    return EnvironmentProblem(
        "STORAGE_ERROR",
        f"the file system failed on {path}: {reason}.",
        fix="check the path and the health of the disk (`dmesg`, `df`); holdfast needs a POSIX "
        "file system with hard links and atomic rename.",
        path=str(path),
        errno=error.errno,
    )


def _mount_of(path: Path) -> Path:
    level = path.absolute()
    while not level.is_mount() and level != level.parent:
        level = level.parent
    return level


def _free_bytes(mount: Path) -> int | None:
    try:
        return shutil.disk_usage(mount).free
    except OSError:
        return None


def _readable(size: int | None) -> str:
    if size is None:
        return "an unknown amount"
    return f"{size / 1024**2:,.1f} MiB" if size >= 1024**2 else f"{size / 1024:,.1f} KiB"
