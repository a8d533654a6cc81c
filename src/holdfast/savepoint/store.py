"""Savepoints in a directory: take, find, verify, remove.

    <savepoints>/<job>/<id>/
    ├── manifest.json     written last: without it there is no savepoint
    ├── checkpoint/       the files of one committed batch
    └── sizes/            state size per key group

A savepoint is made under a hidden name and appears, whole, by one rename. Its files are never
changed afterwards. They may be links to files of the job's checkpoint, which nobody changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.checkup import require_sums
from holdfast.checkpoint.copies import copy_batch
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.sizes import SizesLog, live_keys
from holdfast.checkpoint.spark_files import (
    BatchFiles,
    batch_files,
    committed_batches,
    snapshot_entries,
)
from holdfast.clock import Clock
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    NotFoundError,
    UsageError,
    shorten,
)
from holdfast.faults import fault_point
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.storage.at_once import at_once
from holdfast.storage.digests import Digest, digest
from holdfast.storage.files import (
    fsync_dir,
    list_names,
    make_directory,
    read_json,
    remove_tree,
    storage_errors,
    write_json,
)
from holdfast.storage.processes import is_alive, started_at

CHECKPOINT = "checkpoint"
_ATTEMPTS = 10
_ID = re.compile(r"^[a-z0-9][a-z0-9._-]{0,95}$")
_UNFINISHED = re.compile(r"^\.[^@]+@(?P<host>[^@]+)@(?P<pid>\d+)@(?P<started>\d+)\.part$")
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


def is_id(text: str) -> bool:
    """Whether it can be the id of a savepoint, which is also the name of its directory."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Savepoint:
    """A savepoint, and where it is."""

    path: Path
    manifest: Manifest

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT


@dataclass(frozen=True)
class Draft:
    """A savepoint that is being made, under a hidden name."""

    id: str
    path: Path
    final: Path

    def finish(
        self,
        manifest: Manifest,
        progress: Progress = silent,
        check: Callable[[Mapping[str, Digest]], None] = lambda digests: None,
    ) -> Savepoint:
        """Flush its files, write the manifest and let it appear, unless `check` refuses it."""
        digests = _flushed(self.path, progress)
        check(digests)
        files = (
            SavedFile(path=name, size=each.size, sha256=each.sha256)
            for name, each in digests.items()
        )
        manifest = replace(manifest, files=tuple(files))
        fault_point("savepoint.before_manifest")
        write_json(self.path / MANIFEST, manifest.to_dict())
        fault_point("savepoint.after_manifest")
        with storage_errors(self.final):
            self.path.rename(self.final)
            fsync_dir(self.final.parent)
        return Savepoint(self.final, manifest)


class SavepointStore:
    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    # Taking

    def take(
        self,
        directory: JobDirectory,
        clock: Clock,
        *,
        label: str = "",
        versions: Mapping[str, str],
        keys: Callable[[int], Mapping[str, int]] = lambda epoch: {},
        progress: Progress = silent,
    ) -> Savepoint:
        """Of the newest committed epoch, also while the job runs. `keys` says how many keys
        each step had at an epoch; `versions` names holdfast's and Spark's."""
        identity = directory.load()
        if identity is None or not committed_batches(directory.checkpoint):
            raise NotFoundError(
                "NOTHING_TO_SAVE",
                f"job {directory.name!r} has no committed epoch yet.",
                fix="take a savepoint once it has; `holdfast checkpoints` shows its epochs.",
            )
        now = clock.now()
        with self.draft(identity.name, now) as draft:
            checkpoint = draft.path / CHECKPOINT
            home = draft.final / CHECKPOINT
            files = copy_newest(directory.checkpoint, checkpoint, home=home, progress=progress)
            sizes, entries = (
                directory.sizes.load(files.batch),
                directory.sizes.entries(files.batch),
            )
            SizesLog(draft.path / "sizes").replace_by(sizes, files.batch, entries)
            manifest = replace(
                manifest_of(draft.id, identity, files, now),
                label=label,
                # The job's own figures are there before an epoch is committed; a record may
                # not have come yet, but also counts the steps that Spark keeps.
                keys={**live_keys(sizes), **keys(files.batch)},
                holdfast=versions.get("holdfast", ""),
                spark=versions.get("spark", ""),
            )

            def check(digests: Mapping[str, Digest]) -> None:
                of_spark = {
                    name.removeprefix(f"{CHECKPOINT}/"): each
                    for name, each in digests.items()
                    if name.startswith(f"{CHECKPOINT}/")
                }
                require_sums(of_spark, checkpoint, directory.checkpoint)

            return draft.finish(manifest, progress, check)

    @contextmanager
    def draft(self, job: str, now: datetime) -> Iterator[Draft]:
        """A savepoint in the making; nothing is left of it unless it is finished."""
        self.refuse_inside_a_job()
        name = f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        final = self.root / job / name
        draft = Draft(name, unfinished(final), final)
        make_directory(draft.path)
        try:
            yield draft
        finally:
            remove_tree(draft.path)

    def refuse_inside_a_job(self) -> None:
        """What is kept there would go with the job that it is kept for."""
        if job := JobDirectory.around(self.root):
            raise UsageError(
                "SAVEPOINT_INSIDE_JOB",
                f"{self.root} lies inside {job.path}, which goes with job {job.name!r}.",
                fix="choose another directory: --to DIR, or the setting `savepoints`.",
            )

    # Finding

    def all(self, job: str | None = None) -> list[Savepoint]:
        """All savepoints, oldest first, without those that cannot be read."""
        return self.scan(job)[0]

    def scan(self, job: str | None = None) -> tuple[list[Savepoint], list[CorruptionError]]:
        """All savepoints, oldest first; and what is wrong with those that cannot be read."""
        found, unreadable = [], []
        for path in self._paths(job):
            try:
                found.append(read_savepoint(path))
            except CorruptionError as error:
                unreadable.append(error)
            except NotFoundError:
                continue  # removed meanwhile: a job may keep only its newest ones
        found.sort(key=lambda each: (each.manifest.created, each.manifest.id))
        return found, unreadable

    def _paths(self, job: str | None) -> list[Path]:
        owners = [job] if job else list_names(self.root)
        paths = [
            self.root / owner / name
            for owner in owners
            for name in list_names(self.root / owner)
        ]
        return [path for path in paths if (path / MANIFEST).is_file()]

    def find(self, wanted: str, job: str | None = None) -> Savepoint:
        """By path, by id or the beginning of one, by label, or `latest`."""
        path = Path(wanted).expanduser()
        if (path / MANIFEST).is_file():
            return read_savepoint(path.absolute())
        known = self.all(job)
        if wanted == "latest" and known:
            return known[-1]
        matches = [
            each
            for each in known
            if each.manifest.label == wanted or each.manifest.id.startswith(wanted)
        ]
        exact = [each for each in matches if wanted in (each.manifest.id, each.manifest.label)]
        matches = exact or matches
        if len(matches) == 1:
            return matches[0]
        if not matches and path.is_dir():
            raise NotFoundError(
                "SAVEPOINT_NOT_FOUND",
                f"{path.absolute()} is a directory, but {MANIFEST} is missing in it. That is "
                "written last: without it, this is no savepoint, or half a copy of one.",
                fix="copy the whole directory again, or carry it in one file (`holdfast "
                "savepoint export`); `holdfast savepoint list` shows those that are whole.",
            )
        if not matches:
            raise NotFoundError(
                "SAVEPOINT_NOT_FOUND",
                f"there is no savepoint {shorten(wanted)}"
                + (f" of job {job!r}" if job else "")
                + f" in {self.root}, and no directory with a manifest of that name.",
                fix="`holdfast savepoint list` shows them.",
            )
        raise ConflictError(
            "SAVEPOINT_AMBIGUOUS",
            f"{shorten(wanted)} fits {len(matches)} savepoints: "
            f"{', '.join(each.manifest.id for each in matches[:5])}.",
            fix="write more of the id.",
        )

    def by_id(self, wanted: str) -> Savepoint:
        """By its whole id only, and only what really lies in this directory: for somebody who
        may not name files of this machine."""
        if is_id(wanted):
            for owner in list_names(self.root):
                path = self.root / owner / wanted
                real = path.resolve() == self.root.resolve() / owner / wanted
                if real and (path / MANIFEST).is_file() and not (path / MANIFEST).is_symlink():
                    return read_savepoint(path)
        raise NotFoundError(
            "SAVEPOINT_NOT_FOUND",
            f"there is no savepoint {shorten(wanted)}.",
            fix="`holdfast savepoint list` shows them.",
        )

    # Removing

    def delete(self, savepoint: Savepoint) -> None:
        delete_savepoint(savepoint.path)

    def leftovers(self) -> list[Path]:
        """What crashes have left: directories that are no savepoints, and will be none."""
        found = []
        for owner in list_names(self.root):
            with storage_errors(self.root / owner):
                entries = sorted((self.root / owner).iterdir())
            found += [
                path
                for path in entries
                if not _is_at_work(path.name)
                and (path.name.endswith(".part") or not (path / MANIFEST).is_file())
            ]
        return found


def unfinished(final: Path) -> Path:
    """The hidden name of a savepoint in the making, which says who is at work on it."""
    pid = os.getpid()
    return final.with_name(f".{final.name}@{socket.gethostname()}@{pid}@{started_at(pid)}.part")


def _is_at_work(name: str) -> bool:
    """Of another machine nothing is known: what it has begun is left to it."""
    match = _UNFINISHED.match(name)
    if match is None:
        return False
    here = match["host"] == socket.gethostname()
    return not here or is_alive(int(match["pid"]), int(match["started"]))


def delete_savepoint(path: Path) -> None:
    """The manifest goes first: what is left of a crash is not a savepoint."""
    with storage_errors(path):
        (path / MANIFEST).unlink(missing_ok=True)
    remove_tree(path)


def copy_newest(
    checkpoint: Path, target: Path, *, home: Path | None = None, progress: Progress = silent
) -> BatchFiles:
    """Make `target` of the newest committed batch of a checkpoint that may be in use. It will
    be used at `home`, by default where it is made."""
    for _ in range(_ATTEMPTS):
        batch = committed_batches(checkpoint)[-1]
        try:
            files = batch_files(checkpoint, batch)
            copy_batch(
                checkpoint,
                files,
                target,
                home=home,
                flush=False,  # with the whole savepoint, when it is finished
                each=lambda done, total: progress("copy", done, total),
            )
        except (FileNotFoundError, CorruptionError):
            # Removed meanwhile, because newer epochs have come: take one of those. If
            # none has, the checkpoint is damaged, and looking again says where.
            if committed_batches(checkpoint)[-1] == batch:
                batch_files(checkpoint, batch)
                raise
        else:
            return files
    raise ConflictError(
        "SAVEPOINT_OVERTAKEN",
        f"{checkpoint} forgets epochs faster than they can be copied.",
        fix="raise CheckpointConfig(retained=…).",
    )


def read_savepoint(path: Path) -> Savepoint:
    file = path / MANIFEST
    if not file.is_file():
        raise NotFoundError(
            "SAVEPOINT_NOT_FOUND",
            f"{path} has no {MANIFEST}: it is not a savepoint, or was not finished.",
            fix="`holdfast savepoint list` shows the savepoints.",
            path=str(path),
        )
    return Savepoint(path, Manifest.from_dict(read_json(file), str(file)))


def verify(savepoint: Savepoint, progress: Progress = silent) -> None:
    """Every byte is what was written, nothing is missing or added, and there are as many keys
    as there were; or an error that names the file, or the step."""
    expected = {file.path: file for file in savepoint.manifest.files}
    found = set(_walk(savepoint.path)) - {MANIFEST}
    for name in sorted(set(expected) - found):
        raise _damaged(savepoint, name, "is missing")
    for name in sorted(found - set(expected)):
        raise _damaged(savepoint, name, "does not belong to it")
    for name, file in sorted(expected.items()):
        path = savepoint.path / name
        if path.is_symlink():
            raise _damaged(savepoint, name, "is a link")
        size = path.stat().st_size
        if size != file.size:
            raise _damaged(savepoint, name, f"has {size} bytes instead of {file.size}")
    names = sorted(expected)
    hashes = at_once(lambda name: _sha256(savepoint.path / name), names)
    for done, (name, sha256) in enumerate(hashes, 1):
        if sha256 != expected[name].sha256:
            raise _damaged(savepoint, name, "has other bytes than were written")
        progress("verify", done, len(expected))
    _require_counts(savepoint)


def _require_counts(savepoint: Savepoint) -> None:
    """As far as they can be known without reading state: those of Parquet files and of Spark's
    snapshots. Spark counts an entry of its store where we count a key; both were noted."""
    manifest = savepoint.manifest
    expected: Mapping[str, int]
    if manifest.kind == "canonical":
        # Imported here: `savepoint list` must not pay for Arrow.
        from holdfast.savepoint.canonical import CanonicalState

        found, expected = CanonicalState(savepoint.path).key_counts(), manifest.keys
    else:
        expected = SizesLog(savepoint.path / "sizes").entries(manifest.epoch)
        if not expected:
            return
        entries = snapshot_entries(savepoint.checkpoint, manifest.epoch) or {}
        steps = manifest.identity.operators.items()
        places = {uid: step.get("position") for uid, step in steps}
        found = {uid: entries[place] for uid, place in places.items() if place in entries}
    for uid, count in found.items():
        if expected.get(uid, count) != count:
            raise CorruptionError(
                "SAVEPOINT_DAMAGED",
                f"savepoint {manifest.id}: step {uid!r} has {count:,} keys instead of "
                f"{expected[uid]:,}.",
                fix="use another savepoint, or restore this one from a backup.",
                path=str(savepoint.path),
            )


def _damaged(savepoint: Savepoint, name: str, what: str) -> CorruptionError:
    return CorruptionError(
        "SAVEPOINT_DAMAGED",
        f"savepoint {savepoint.manifest.id}: {savepoint.path / name} {what}.",
        fix="use another savepoint, or restore this one from a backup.",
        path=str(savepoint.path / name),
    )


def manifest_of(name: str, identity: JobIdentity, files: BatchFiles, now: datetime) -> Manifest:
    origin = identity.timelines[-1].origin if identity.timelines else ""
    watermark = files.start.watermark_ms
    return Manifest(
        id=name,
        kind="native",
        created=now,
        epoch=files.batch,
        identity=replace(identity, rewind_pending=False),
        sources=_positions(files),
        watermark=datetime.fromtimestamp(watermark / 1000, UTC) if watermark > 0 else None,
        parent=origin if _ID.match(origin) else None,
    )


def _positions(files: BatchFiles) -> dict[str, Any]:
    return {source.name: source.offset for source in files.start.sources}


def _walk(root: Path) -> list[str]:
    before = len(f"{root}/")
    return [f"{folder}/{name}"[before:] for folder, _, names in os.walk(root) for name in names]


def _flushed(root: Path, progress: Progress) -> dict[str, Digest]:
    """Bring a directory to the disk. What each file holds, by its path: while one waits for the
    disk, the next is hashed."""
    names, found = _walk(root), {}
    digests = at_once(lambda name: digest(root / name, flush=True), names)
    for done, (name, each) in enumerate(digests, 1):
        found[name] = each
        progress("hash", done, len(names))
    for folder, _, _ in os.walk(root):
        fsync_dir(Path(folder))
    return dict(sorted(found.items()))


def _sha256(path: Path) -> str:
    with storage_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
