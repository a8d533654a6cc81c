"""A copy of one committed batch, as a checkpoint of its own that goes on after it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.checkpoint.source_log import files_up_to, rebuilt
from holdfast.checkpoint.spark_files import BatchFiles
from holdfast.faults import fault_point
from holdfast.storage.files import (
    fsync_dir,
    make_directory,
    remove_tree,
    storage_errors,
    write_atomic,
)

Moved = Callable[[str], str]
_AT_ONCE = 16


def unmoved(path: str) -> str:
    return path


def copy_batch(
    checkpoint: Path,
    files: BatchFiles,
    target: Path,
    *,
    home: Path | None = None,
    moved: Moved = unmoved,
    flush: bool = True,
    each: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Make `target`, which must not exist, of a batch of `checkpoint`.

    Files are linked where the file system can, for nothing changes them. Paths inside them are
    changed to `home`, where the copy will be used (by default `target`). It appears whole or
    not at all; `flush` has it survive a loss of power. FileNotFoundError: the job has removed a
    file meanwhile; take a newer batch.
    """
    part = target.with_name(f".{target.name}.part")
    remove_tree(part)
    make_directory(part)
    total = len(files.linked) + len(files.with_paths) + len(files.logs)
    links = _Links(checkpoint, part)
    for done, name in enumerate(files.linked, 1):
        links.add(name)
        each(done, total)
    fault_point("copy.linked")
    for name in files.with_paths:
        number = int(name.split("/")[1])  # state/<number>/_metadata/…
        content = relocated_metadata(checkpoint / name, home or target, number)
        _write(part / name, content)
    for source, last in files.logs.items():
        _copy_log(links, source, last, moved)
    each(total, total)
    if flush:
        fsync_all(part)
    with storage_errors(target):
        part.rename(target)
    if flush:
        fsync_dir(target.parent)


def _copy_log(links: _Links, source: str, last: int, moved: Moved) -> None:
    log = links.checkpoint / "sources" / source
    names = files_up_to(log, last) if moved is unmoved else None
    if names is not None:
        for name in names:
            links.add(f"sources/{source}/{name}")
        return
    for name, content in rebuilt(log, last, moved).items():
        _write(links.part / "sources" / source / name, content)


class _Links:
    """Files of a checkpoint, linked with their check sums.

    A savepoint has hundreds of them: each folder is listed and made once.
    """

    def __init__(self, checkpoint: Path, part: Path) -> None:
        self.checkpoint, self.part = checkpoint, part
        self._listed: dict[str, frozenset[str]] = {}

    def add(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        source, target = f"{self.checkpoint}/{folder}", f"{self.part}/{folder}"
        if folder not in self._listed:
            self._listed[folder] = frozenset(os.listdir(source))  # noqa: PTH208
            with storage_errors(Path(target)):
                os.makedirs(target, exist_ok=True)  # noqa: PTH103
        _link(f"{source}/{name}", f"{target}/{name}")
        # Hadoop's sum of each file is hidden; Spark's own, of state files, has one of Hadoop's
        # too.
        for beside in (f".{name}.crc", f"{name}.crc", f".{name}.crc.crc"):
            if beside in self._listed[folder]:
                _link(f"{source}/{beside}", f"{target}/{beside}")


def link(source: Path, target: Path) -> None:
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    """Into a folder that is there."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise  # the caller knows why it may be gone
    except OSError:
        # Another file system, or one without links.
        with storage_errors(Path(target)):
            shutil.copyfile(source, target)


def relocated_metadata(path: Path, home: Path, number: int) -> bytes:
    """What Spark notes about an operator, for one with this number in a checkpoint at `home`:
    its number, and by absolute path where the schemas of its state are."""
    version, text = path.read_text(encoding="utf-8").split("\n", 1)
    content: dict[str, Any] = json.loads(text)
    content["operatorInfo"]["operatorId"] = number
    for store in content["stateStoreInfo"]:
        if "stateSchemaFilePaths" in store:
            store["stateSchemaFilePaths"] = [
                f"file:{home}/state/{number}/{old.rpartition('/state/')[2].partition('/')[2]}"
                for old in store["stateSchemaFilePaths"]
            ]
    return f"{version}\n{json.dumps(content, separators=(',', ':'))}".encode()


def rewrite(path: Path, content: bytes) -> None:
    """Give a file other content, without touching what it is a link to."""
    write_atomic(path, content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def fsync_all(root: Path) -> None:
    """Files first, then the directories that name them. Disks like to be asked for many."""
    folders, files = [], []
    for folder, _, names in os.walk(root):
        folders.append(Path(folder))
        files += [f"{folder}/{name}" for name in names]
    with storage_errors(root), ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(_fsync_file, files):
            pass
        for _ in pool.map(fsync_dir, folders):
            pass


def _fsync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
