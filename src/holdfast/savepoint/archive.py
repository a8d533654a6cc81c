"""One file that holds a whole savepoint, to be carried to another place.

    manifest.json      first, with its own SHA-256 in the comment of its header
    checkpoint/…       the files that the manifest names, in its order
    sizes/…

The manifest comes first, so that everything after it can be checked while it is read. An
archive may come from anywhere: only regular files that the manifest names are taken out of it,
with the sizes that it says, under names that stay inside the savepoint.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import ConflictError, CorruptionError, UsageError, shorten
from holdfast.faults import fault_point
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.savepoint.store import (
    Progress,
    Savepoint,
    SavepointStore,
    is_id,
    silent,
    unfinished,
    verify,
)
from holdfast.savepoint.tar_stream import (
    CHUNK,
    Member,
    TarReader,
    TarWriter,
    damaged,
    not_an_archive,
    refused,
)
from holdfast.storage.files import (
    fsync_dir,
    fsync_file,
    make_directory,
    remove_tree,
    storage_errors,
    write_atomic,
)
from holdfast.types import NAME_PATTERN

FORMAT_VERSION = 1
MANIFEST_LIMIT = 64 * 1024 * 1024
"""The manifest is read before anything is known about an archive. This is 400,000 files."""
_COMMENT = re.compile(r"holdfast-savepoint ([0-9]{1,9}) sha256=([0-9a-f]{64})")
_HASH = re.compile(r"[0-9a-f]{64}")
_TIMELINE = re.compile(r"t[0-9]{1,9}")
_ATTEMPT = re.compile(r"[at][0-9]{1,9}")
_SUFFIX = re.compile(r"(\.[a-zA-Z0-9][a-zA-Z0-9._-]{0,63})?(\.t[0-9]{1,9})?")


# Exporting


def export_savepoint(
    savepoint: Savepoint, target: Path, *, force: bool = False, progress: Progress = silent
) -> Path:
    """Write the archive, once every byte of the savepoint is what its manifest says.

    It appears whole or not at all; a file that is there already is replaced only by `force`.
    """
    target = target.expanduser().absolute()
    _refuse_inside(savepoint, target)
    _refuse_existing_file(target, force=force)
    file = savepoint.path / MANIFEST
    with storage_errors(file):
        content = file.read_bytes()
    # The rules of an import, so that no archive is written that cannot be read again.
    manifest = _checked(content, str(file))
    verify(Savepoint(savepoint.path, manifest), progress)
    make_directory(target.parent)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with storage_errors(target):
            _pack(savepoint.path, manifest, content, part, progress)
            fsync_file(part)
            fault_point("export.before_rename")
            _refuse_existing_file(target, force=force)
            part.replace(target)
            fsync_dir(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return target


def _pack(
    root: Path, manifest: Manifest, content: bytes, part: Path, progress: Progress
) -> None:
    done = 0
    digest = hashlib.sha256(content).hexdigest()
    first = Member(
        name=MANIFEST,
        size=len(content),
        comment=f"holdfast-savepoint {FORMAT_VERSION} sha256={digest}",
    )
    with (
        part.open("xb") as file,
        TarWriter(file, modified=int(manifest.created.timestamp())) as archive,
    ):
        archive.add(first, [content])
        for saved in manifest.files:
            archive.add(Member(name=saved.path, size=saved.size), _read(root, saved))
            done += saved.size
            progress("pack", done, manifest.bytes)
            fault_point("export.mid_pack")
        archive.end()


def _read(root: Path, saved: SavedFile) -> Iterator[bytes]:
    """The bytes of a file, which must still be those that the manifest has the hash of."""
    path = root / saved.path
    digest, size = hashlib.sha256(), 0
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, no path
        while True:
            with storage_errors(path):
                chunk = file.read(CHUNK)
            if not chunk:
                break
            digest.update(chunk)
            size += len(chunk)
            yield chunk
    if (size, digest.hexdigest()) != (saved.size, saved.sha256):
        raise CorruptionError(
            "SAVEPOINT_DAMAGED",
            f"{path} was changed while it was packed.",
            fix="find out what writes into the savepoint; use another one.",
            path=str(path),
        )


def _refuse_inside(savepoint: Savepoint, target: Path) -> None:
    if target.resolve().is_relative_to(savepoint.path.resolve()):
        raise UsageError(
            "ARCHIVE_INSIDE_SAVEPOINT",
            f"{target} lies inside the savepoint {savepoint.path}, to which nothing may be "
            "added.",
            fix="write the archive to another directory.",
            path=str(target),
        )


def _refuse_existing_file(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise ConflictError(
            "ARCHIVE_EXISTS",
            f"{target} is a directory.",
            fix=f"name a file, such as {target / 'savepoint.tar.zst'}.",
            path=str(target),
        )
    if not force and os.path.lexists(target):
        raise ConflictError(
            "ARCHIVE_EXISTS",
            f"{target} exists already.",
            fix="choose another name, or replace the file with --force.",
            path=str(target),
        )


# Importing


def import_savepoint(
    archive: Path, store: SavepointStore, *, progress: Progress = silent
) -> Savepoint:
    """Unpack an archive into `store`. The savepoint appears by one rename, when every file is
    there with the hash that the manifest says."""
    store.refuse_inside_a_job()
    archive = archive.expanduser().absolute()
    with TarReader(archive) as reader:
        content = _first_member(reader)
        manifest = _checked(content, f"{MANIFEST} in {archive}")
        final = store.root / manifest.identity.name / manifest.id
        _refuse_existing_savepoint(final, manifest)
        part = unfinished(final)
        remove_tree(part)
        make_directory(part)
        try:
            with storage_errors(final):
                _require_space(part, manifest.bytes)
                _unpack(reader, manifest, part, progress)
                fault_point("import.before_manifest")
                write_atomic(part / MANIFEST, content)
                _sync_directories(part)
                fault_point("import.before_rename")
                _appear(part, final, manifest)
        except BaseException:
            remove_tree(part)
            raise
    return Savepoint(final, manifest)


def _first_member(reader: TarReader) -> bytes:
    """The bytes of the manifest, which are those that were exported."""
    member = reader.next()
    comment = _COMMENT.fullmatch(member.comment) if member else None
    if member is None or comment is None or member.name != MANIFEST:
        raise not_an_archive(reader.path, f"it does not begin with a {MANIFEST} of holdfast's")
    if int(comment[1]) != FORMAT_VERSION:
        raise CorruptionError(
            "SAVEPOINT_FORMAT_UNKNOWN",
            f"the archive {reader.path} has format {int(comment[1])}; this version of "
            f"holdfast reads {FORMAT_VERSION}.",
            fix="use the holdfast version that exported it, or a newer one.",
            path=str(reader.path),
        )
    if not 0 < member.size <= MANIFEST_LIMIT:
        raise refused(reader.path, f"its {MANIFEST} has {member.size} bytes")
    content = b"".join(reader.content(member))
    if hashlib.sha256(content).hexdigest() != comment[2]:
        raise damaged(reader.path, f"its {MANIFEST} has other bytes than were written")
    return content


def _unpack(reader: TarReader, manifest: Manifest, part: Path, progress: Progress) -> None:
    left = {saved.path: saved for saved in manifest.files}
    seen: set[str] = set()
    done = 0
    while member := reader.next():
        saved = left.pop(member.name, None)
        if saved is None:
            what = "comes twice" if member.name in seen else "is not named by its manifest"
            raise refused(reader.path, f"{shorten(member.name)} in it {what}")
        seen.add(member.name)
        if member.size != saved.size:
            raise refused(
                reader.path,
                f"{shorten(saved.path)} in it has {member.size} bytes, its manifest says "
                f"{saved.size}",
            )
        _write(reader, member, saved, part / saved.path)
        done += saved.size
        progress("unpack", done, manifest.bytes)
        fault_point("import.mid_unpack")
    for name in sorted(left):
        raise damaged(reader.path, f"{shorten(name)} is missing")


def _write(reader: TarReader, member: Member, saved: SavedFile, path: Path) -> None:
    digest = hashlib.sha256()
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for chunk in reader.content(member):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    if digest.hexdigest() != saved.sha256:
        raise damaged(reader.path, f"{shorten(saved.path)} has other bytes than were exported")


def _require_space(part: Path, wanted: int) -> None:
    if wanted > shutil.disk_usage(part).free:
        raise OSError(errno.ENOSPC, f"no space for the {wanted:,} bytes of the savepoint")


def _sync_directories(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        fsync_dir(Path(folder))


def _appear(part: Path, final: Path, manifest: Manifest) -> None:
    try:
        part.rename(final)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            _refuse_existing_savepoint(final, manifest)  # another import was faster
        raise
    fault_point("import.after_rename")
    fsync_dir(final.parent)


def _refuse_existing_savepoint(final: Path, manifest: Manifest) -> None:
    if not os.path.lexists(final):
        return
    whole = (final / MANIFEST).is_file()
    raise ConflictError(
        "SAVEPOINT_EXISTS",
        f"savepoint {manifest.id} of job {manifest.identity.name!r} is there already, in "
        f"{final}{'' if whole else ', but unfinished'}.",
        fix=f"use that one, or `holdfast savepoint delete {manifest.id}` first; or import to "
        "another directory: --to DIR."
        if whole
        else "`holdfast savepoint gc` removes what is unfinished; then import again.",
        path=str(final),
    )


# What a manifest may say


def _checked(content: bytes, where: str) -> Manifest:
    """The manifest, if everything in it can be used without a second look."""
    if len(content) > MANIFEST_LIMIT:
        raise _odd(where, f"it has {len(content)} bytes")
    try:
        stored = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _odd(where, f"it is no JSON ({error})") from error
    manifest = Manifest.from_dict(stored, where)
    for problem in _problems(manifest):
        raise _odd(where, problem)
    return manifest


def _odd(where: str, problem: str) -> CorruptionError:
    return CorruptionError(
        "SAVEPOINT_MANIFEST_DAMAGED",
        f"{where} is not a manifest that holdfast wrote: {problem}.",
        fix="use another archive or savepoint, or export it again.",
        path=where,
    )


def _problems(manifest: Manifest) -> Iterator[str]:
    """Names become paths and figures are added up, so each must be of its kind."""
    if not _is_text(manifest.id) or not is_id(manifest.id):
        yield f"its id is {shorten(manifest.id)}"
    if not _is_time(manifest.created):
        yield "it has no time"
    if not _is_count(manifest.epoch):
        yield f"its epoch is {shorten(manifest.epoch)}"
    texts = (manifest.label, manifest.holdfast, manifest.spark, manifest.parent or "")
    if not all(map(_is_text, texts)):
        yield "its label, parent or versions are no texts"
    if not _is_mapping(manifest.keys) or not all(map(_is_count, manifest.keys.values())):
        yield f"its keys are {shorten(manifest.keys)}"
    if not _is_mapping(manifest.sources):
        yield f"its sources are {shorten(manifest.sources)}"
    yield from _problems_of_job(manifest.identity)
    yield from _problems_of_files(manifest.files)


def _problems_of_job(identity: JobIdentity) -> Iterator[str]:
    if not _is_text(identity.name) or not NAME_PATTERN.fullmatch(identity.name):
        yield f"the name of its job is {shorten(identity.name)}"
    texts = (identity.job_id, identity.backend)
    if not all(map(_is_text, texts)):
        yield f"its job has the id and the backend {shorten(texts)}"
    if not all(map(_is_count, (identity.parallelism, identity.key_groups))):
        yield "the parallelism or key groups of its job are no numbers"
    # A suffix is added to directories of sinks, and timelines to that of the checkpoint.
    if not _fits(_SUFFIX, identity.output_suffix):
        yield f"its job has the output suffix {shorten(identity.output_suffix)}"
    if identity.adoption is not None:
        yield "its job has still to take over the output of another one"
    if fork := identity.fork:
        names = (fork.job, fork.job_id, fork.savepoint, fork.timeline)
        if not all(map(_is_text, names)) or not _is_count(fork.epoch):
            yield f"its job is a fork of {shorten(fork)}"
    if not _is_mapping(identity.outputs) or not all(
        _is_mapping(each) and all(map(_is_text, each.values()))
        for each in identity.outputs.values()
    ):
        yield f"its job has the outputs {shorten(identity.outputs)}"
    if not _fits(_ATTEMPT, identity.timeline):
        yield f"its timeline is {shorten(identity.timeline)}"
    for timeline in identity.timelines:
        sound = (
            _fits(_TIMELINE, timeline.name)
            and (timeline.parent is None or _fits(_ATTEMPT, timeline.parent))
            and (timeline.epoch is None or _is_count(timeline.epoch))
            and all(map(_is_text, (timeline.origin, timeline.sinks, timeline.began)))
        )
        if not sound:
            yield f"it has the timeline {shorten(timeline)}"


def _problems_of_files(files: tuple[SavedFile, ...]) -> Iterator[str]:
    names: set[str] = set()
    for saved in files:
        if not _stays_inside(saved.path):
            yield f"it names the file {shorten(saved.path)}"
        elif not _is_count(saved.size) or not _fits(_HASH, saved.sha256):
            yield f"size or SHA-256 of {shorten(saved.path)} are none"
        elif saved.path in names:
            yield f"it names {shorten(saved.path)} twice"
        names.add(saved.path)
    folders = {
        "/".join(parts[:depth])
        for parts in (name.split("/") for name in names)
        for depth in range(1, len(parts))
    }
    for name in sorted(folders & names):
        yield f"it names {shorten(name)} as a file and as a directory"


def _stays_inside(path: Any) -> bool:
    """Plain and relative: `checkpoint/offsets/7`, also on systems with other separators."""
    return (
        _is_text(path)
        and path != MANIFEST
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def _fits(pattern: re.Pattern[str], value: Any) -> bool:
    return _is_text(value) and pattern.fullmatch(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)
