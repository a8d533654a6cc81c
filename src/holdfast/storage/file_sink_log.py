"""The epoch commit protocol of file sinks: every row visible once, whatever is killed when.

The directory of a sink::

    out/balances/
    ├── part-main-000000007-00000-5d41402a.parquet     published: all that a reader sees
    └── _holdfast/<job>/<sink uid>/                    hidden from Spark, pyarrow and Hive
        ├── owner.json                                 whose sub-path this is
        ├── lock                                       held while an epoch is decided
        ├── fence.json                                 the newest attempt that has come
        ├── staging/main-8-9f86d081e4c7/…              one directory per attempt
        └── commits/main/000000000007.json             the decision, one per epoch

An attempt writes into its own staging directory. Its epoch is committed if and only if the
commit record exists, and the record is created by an operation that exactly one attempt can
win. Only then are the files renamed to the names the record gives them. So a crash leaves
one of two things: staging without a record, which is discarded, or a record whose staging
directory still exists, which is completed by repeating the renames. The staging directory
is removed last; recovery therefore looks at the staging directories only, never at the
records of a long past.

Names carry the timeline, the epoch, a number and a tag of (job id, sink uid), so that several
sinks may publish into one directory.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConflictError, CorruptionError, SettingsError, UsageError, shorten
from holdfast.faults import fault_point
from holdfast.storage.files import (
    create_exclusive,
    exclusive_lock,
    fsync_dir,
    fsync_file,
    list_names,
    make_directory,
    read_json,
    remove_tree,
    size_of,
    storage_errors,
    to_json_bytes,
    write_json,
)
from holdfast.types import check_name

FORMAT_VERSION = 1
PRIVATE_DIRECTORY = "_holdfast"
FILE_FORMATS = ("parquet", "jsonl")

_PUBLISHED = re.compile(
    r"^part-(?P<timeline>.+)-(?P<epoch>\d{9,})-(?P<number>\d{5,})-[0-9a-f]{8}\.(parquet|jsonl)$"
)
_ATTEMPT = re.compile(r"^(?P<timeline>.+)-(?P<epoch>\d+)-[0-9a-f]+$")
_RECORD = re.compile(r"^(?P<epoch>\d{12,})\.json$")
_SYSTEM_CLOCK = SystemClock()
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A file that an attempt has written, named relative to its staging directory."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CommittedFile:
    """Where a file was staged (relative to the sink's private directory) and its final name."""

    staged: str
    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """The decision that an epoch is part of the output, and which files it consists of."""

    timeline: str
    epoch: int
    staging: str
    files: tuple[CommittedFile, ...]
    rows: int
    bytes: int
    committed_at: datetime
    already: bool = False
    """True if `commit` found this record: an earlier attempt had committed the epoch."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What `open` had to do: nothing, after a clean stop."""

    completed: tuple[CommitRecord, ...] = ()
    discarded: tuple[str, ...] = ()

    @property
    def completed_epochs(self) -> tuple[int, ...]:
        return tuple(record.epoch for record in self.completed)


class FileSinkLog:
    """The commit log of one file sink, for one timeline of one job.

    Call `open` once per run, then per epoch: skip it if `is_committed`, else `begin`, write
    files into the directory it returns, `commit`. Any of these may be interrupted by a crash;
    the next `open` puts the directory right. An epoch may be attempted again at any time: the
    second attempt changes nothing.
    """

    def __init__(
        self,
        directory: Path,
        *,
        job_id: str,
        job_name: str,
        sink_uid: str,
        file_format: str,
        timeline: str,
        fence: int = 0,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        """`fence` grows with every attempt of the job; one with a smaller fence is refused."""
        if file_format not in FILE_FORMATS:
            raise SettingsError(
                "UNKNOWN_FILE_FORMAT",
                f"the file format of sink {shorten(sink_uid)} is {shorten(file_format)}.",
                fix=f"use one of {', '.join(FILE_FORMATS)}.",
            )
        self.directory = directory
        self.timeline = check_name(timeline, "timeline")
        self._job_id = job_id
        self._job_name = check_name(job_name, "job name")
        self._sink_uid = check_name(sink_uid, "sink uid")
        self._file_format = file_format
        self._clock = clock
        self._fence = fence
        self._private = directory / PRIVATE_DIRECTORY / job_name / sink_uid
        self._staging = self._private / "staging"
        self._lock = self._private / "lock"
        self._tag = hashlib.sha256(f"{job_id}/{sink_uid}".encode()).hexdigest()[:8]
        self._opened = False

    def open(self) -> Recovery:
        """Claim the directory, complete what was committed, discard what was not."""
        make_directory(self._staging)
        make_directory(self._commits(self.timeline))
        self._claim()
        completed, discarded = [], []
        # The lock keeps a commit that is being decided right now from losing its files.
        with exclusive_lock(self._lock):
            self._raise_fence()
            for name in list_names(self._staging):
                record = self._record_of_attempt(name)
                if record is None:
                    remove_tree(self._staging / name)
                    discarded.append(name)
                else:
                    completed.append(record)
        for record in completed:
            self._publish(record)
        self._opened = True
        return Recovery(completed=tuple(completed), discarded=tuple(discarded))

    def is_committed(self, epoch: int) -> bool:
        return size_of(self._record_path(self.timeline, epoch)) is not None

    def begin(self, epoch: int) -> Path:
        """A fresh, empty staging directory for one attempt at `epoch`."""
        self._require_open()
        staging = self._staging / f"{self.timeline}-{epoch}-{secrets.token_hex(6)}"
        with storage_errors(staging):
            fault_point("sink.before_staging")
            staging.mkdir()
        return staging

    def commit(self, epoch: int, staging: Path, files: Sequence[StagedFile]) -> CommitRecord:
        """Make the attempt's files the output of `epoch`, unless another attempt's are.

        Files without rows are dropped. Returns the record that holds; its `already` says
        whether it is an earlier attempt's.
        """
        self._require_open()
        self._require_own(epoch, staging)
        with storage_errors(staging):
            if not self.is_committed(epoch):
                record = self._proposal(epoch, staging, files)
                self._sync(staging, record.files)
                fault_point("sink.before_commit_record")
                if self._decide(record, staging):
                    fault_point("sink.after_commit_record")
                    self._publish(record)
                    return record
            remove_tree(staging)
            record = self.record(epoch)
            # Its attempt may have died between the decision and the last rename.
            if (self._staging / record.staging).exists():
                self._publish(record)
            return replace(record, already=True)

    def committed_epochs(self) -> list[int]:
        """The committed epochs of this timeline, in order."""
        return self._epochs(self.timeline)

    def _epochs(self, timeline: str) -> list[int]:
        matches = map(_RECORD.match, list_names(self._commits(timeline)))
        return sorted(int(match["epoch"]) for match in matches if match)

    def record(self, epoch: int) -> CommitRecord:
        """The record of a committed epoch; NotFoundError if it is not committed."""
        return self._read_record(self.timeline, epoch)

    # Going back

    def beyond(self, kept: Mapping[str, int | None]) -> list[CommitRecord]:
        """The epochs, of all timelines, that are not among `kept`: by timeline the last epoch
        that counts, None for all of it. Newest first."""
        found = []
        for timeline in list_names(self._private / "commits"):
            last = kept.get(timeline, -1)
            if last is not None:
                found += [
                    self._read_record(timeline, epoch)
                    for epoch in self._epochs(timeline)
                    if epoch > last
                ]
        return sorted(found, key=lambda record: (record.epoch, record.timeline), reverse=True)

    def within(self, kept: Mapping[str, int | None], *, after: int = -1) -> list[CommitRecord]:
        """The epochs past `after` that are among `kept`. Oldest first."""
        return [
            self._read_record(timeline, epoch)
            for epoch, timeline in sorted(
                (epoch, timeline)
                for timeline, last in kept.items()
                for epoch in self._epochs(timeline)
                if epoch > after and (last is None or epoch <= last)
            )
        ]

    def path_of(self, file: CommittedFile) -> Path:
        """Where a committed file is: published, unless a crash came in between."""
        published = self.directory / file.name
        staged = self._private / file.staged
        return staged if size_of(published) is None and size_of(staged) else published

    @property
    def is_claimed(self) -> bool:
        """Whether the job has ever written here."""
        path = self._private / "owner.json"
        return size_of(path) is not None and read_json(path).get("job_id") == self._job_id

    def rewind(self, kept: Mapping[str, int | None]) -> list[CommitRecord]:
        """Remove what :meth:`beyond` finds. An epoch's record goes last, so that a rewind that
        was interrupted can be repeated."""
        self._require_open()
        with exclusive_lock(self._lock), storage_errors(self.directory):
            self._check_fence()
            dropped = self.beyond(kept)
            for record in dropped:
                for file in record.files:
                    (self.directory / file.name).unlink(missing_ok=True)
                fsync_dir(self.directory)
                fault_point("sink.mid_rewind")
                self._record_path(record.timeline, record.epoch).unlink(missing_ok=True)
        return dropped

    # Ownership

    def _claim(self) -> None:
        path = self._private / "owner.json"
        mine = {
            "format_version": FORMAT_VERSION,
            "job_id": self._job_id,
            "job_name": self._job_name,
            "sink_uid": self._sink_uid,
            "file_format": self._file_format,
        }
        if size_of(path) is None and create_exclusive(path, to_json_bytes(mine)):
            return
        owner = read_json(path)
        if not isinstance(owner, dict) or owner.get("format_version") != FORMAT_VERSION:
            raise _odd(path, f"format version {FORMAT_VERSION} was expected")
        if owner.get("job_id") != self._job_id:
            raise ConflictError(
                "SINK_OWNED_BY_ANOTHER_JOB",
                f"{self._private} belongs to another job named {self._job_name!r} (id "
                f"{shorten(owner.get('job_id'))}; this one is {self._job_id!r}).",
                fix="give the sink another directory or another uid, or resume the job that "
                f"owns it. If that job is gone for good, remove {self._private}: its published "
                "files stay.",
                path=str(path),
                owner=owner.get("job_id"),
            )
        if owner.get("file_format") != self._file_format:
            raise ConflictError(
                "SINK_FORMAT_CHANGED",
                f"sink {self._sink_uid!r} has written {owner.get('file_format')} files into "
                f"{self.directory} and is now declared with {self._file_format}; a reader of "
                "the directory would meet both.",
                fix="give the sink another directory, or keep the format.",
                path=str(path),
            )

    # Fencing: both under the lock, so a decision is never made by an attempt that a newer one
    # has replaced, however long it slept before it came to decide.

    def _raise_fence(self) -> None:
        self._check_fence()
        write_json(
            self._private / "fence.json",
            {"format_version": FORMAT_VERSION, "fence": self._fence},
        )

    def _check_fence(self) -> None:
        path = self._private / "fence.json"
        newest = 0
        if size_of(path) is not None:
            stored = read_json(path)
            if not isinstance(stored, dict) or type(stored.get("fence")) is not int:
                raise _odd(path, "it holds no fence")
            newest = stored["fence"]
        if newest > self._fence:
            raise ConflictError(
                "FENCED",
                f"attempt {newest} of job {self._job_name!r} has taken over {self.directory}; "
                f"this one, {self._fence}, may write no more.",
                fix="nothing: the other run goes on. No row is lost or doubled.",
                path=str(path),
            )

    # Deciding

    def _proposal(self, epoch: int, staging: Path, files: Sequence[StagedFile]) -> CommitRecord:
        kept = [file for file in files if file.rows > 0]
        committed = tuple(
            CommittedFile(
                staged=f"staging/{staging.name}/{_inner_name(file.name)}",
                name=f"part-{self.timeline}-{epoch:09d}-{number:05d}-{self._tag}"
                f".{self._file_format}",
                rows=file.rows,
                bytes=file.bytes,
            )
            for number, file in enumerate(kept)
        )
        return CommitRecord(
            timeline=self.timeline,
            epoch=epoch,
            staging=staging.name,
            files=committed,
            rows=sum(file.rows for file in kept),
            bytes=sum(file.bytes for file in kept),
            committed_at=self._clock.now(),
        )

    def _sync(self, staging: Path, files: Sequence[CommittedFile]) -> None:
        if not staging.is_dir():
            return  # discarded by another run: `_decide` finds out for certain
        # The name of the staging directory must be as durable as the files in it.
        directories = {staging, self._staging}
        for file in files:
            path = self._private / file.staged
            size = size_of(path)
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise CorruptionError(
                    "STAGED_FILE_DIFFERS",
                    f"{path} {found}, but {file.bytes} bytes were written; the epoch was not "
                    "committed.",
                    fix="run the job again: the epoch is repeated from its input.",
                    path=str(path),
                )
            fsync_file(path)
            directories.update(parent for parent in path.parents if staging in parent.parents)
        for directory in directories:
            fsync_dir(directory)

    def _decide(self, record: CommitRecord, staging: Path) -> bool:
        """Whether this attempt has won its epoch."""
        path = self._record_path(record.timeline, record.epoch)
        with exclusive_lock(self._lock):
            self._check_fence()
            if staging.is_dir():
                # Scratch in staging: a crash leaves no litter among the records.
                return create_exclusive(path, _encode(record), scratch=staging)
        if self.is_committed(record.epoch):
            return False
        raise ConflictError(
            "STAGING_DISCARDED",
            f"another run of job {self._job_name!r} opened {self.directory} while epoch "
            f"{record.epoch} was being written here, and discarded {staging.name}.",
            fix="let one run of the job go on and end the other; no row is lost or doubled.",
            path=str(staging),
        )

    # Publishing

    def _publish(self, record: CommitRecord) -> None:
        """Give the files of a committed epoch their final names; may be repeated."""
        with storage_errors(self.directory):
            for number, file in enumerate(record.files):
                self._publish_file(file)
                if number == 0:
                    fault_point("sink.mid_publication")
            fsync_dir(self.directory)
            fault_point("sink.after_publication")
            remove_tree(self._staging / record.staging)

    def _publish_file(self, file: CommittedFile) -> None:
        source, target = self._private / file.staged, self.directory / file.name
        for path in (source, target):
            size = size_of(path)
            if size is not None and size != file.bytes:
                raise CorruptionError(
                    "PUBLISHED_FILE_DIFFERS",
                    f"{path} has {size} bytes, but {file.bytes} were committed.",
                    fix="find out which program writes into this directory; move the file away "
                    "and restore it from a backup.",
                    path=str(path),
                )
        try:
            source.replace(target)
        except FileNotFoundError:
            # Renamed by an earlier attempt, or at this moment by another process.
            if size_of(target) is None:
                raise CorruptionError(
                    "COMMITTED_FILE_MISSING",
                    f"a committed file is neither at {source} nor at {target}.",
                    fix="restore it from a backup under the second name.",
                    staged=str(source),
                    published=str(target),
                ) from None

    # Paths and records

    def _commits(self, timeline: str) -> Path:
        return self._private / "commits" / timeline

    def _record_path(self, timeline: str, epoch: int) -> Path:
        return self._commits(timeline) / f"{epoch:012d}.json"

    def _record_of_attempt(self, staging_name: str) -> CommitRecord | None:
        """The record that this very attempt (of any timeline) has won, if it has."""
        match = _ATTEMPT.match(staging_name)
        if match is None:
            return None
        timeline, epoch = match["timeline"], int(match["epoch"])
        if size_of(self._record_path(timeline, epoch)) is None:
            return None
        record = self._read_record(timeline, epoch)
        return record if record.staging == staging_name else None

    def _read_record(self, timeline: str, epoch: int) -> CommitRecord:
        path = self._record_path(timeline, epoch)
        return _decode(path, read_json(path), timeline, epoch)

    def _require_open(self) -> None:
        if not self._opened:
            raise UsageError(
                "SINK_LOG_NOT_OPEN",
                f"the log of sink {self._sink_uid!r} has not been opened in this run.",
                fix="call open() first: it completes what the last run left behind.",
            )

    def _require_own(self, epoch: int, staging: Path) -> None:
        match = _ATTEMPT.match(staging.name)
        expected = (self._staging, self.timeline, epoch)
        if (
            match is None
            or (staging.parent, match["timeline"], int(match["epoch"])) != expected
        ):
            raise UsageError(
                "STAGING_OF_ANOTHER_EPOCH",
                f"{staging} was not made by begin({epoch}) of this log.",
                fix="commit the directory that begin() returned for the same epoch.",
            )


def committed_files(directory: Path) -> list[Path]:
    """What the sinks of `directory` have published, by timeline, epoch and number."""
    matches = filter(None, map(_PUBLISHED.match, list_names(directory)))
    ordered = sorted(
        matches,
        key=lambda match: (
            match["timeline"],
            int(match["epoch"]),
            int(match["number"]),
            match[0],
        ),
    )
    return [directory / match[0] for match in ordered]


def _inner_name(name: str) -> str:
    """A staged name, refused if it leads out of the staging directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise UsageError(
            "STAGED_NAME_OUTSIDE",
            f"the staged file {shorten(name)} is not inside its staging directory.",
            fix="name staged files relative to the directory that begin() returned.",
        )
    return str(path)


def _encode(record: CommitRecord) -> bytes:
    fields = asdict(record)
    del fields["already"]
    fields["committed_at"] = record.committed_at.isoformat()
    return to_json_bytes({"format_version": FORMAT_VERSION, **fields})


def _decode(path: Path, fields: Any, timeline: str, epoch: int) -> CommitRecord:
    try:
        if fields["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format version {fields['format_version']!r} is unknown")  # noqa: TRY301
        record = CommitRecord(
            timeline=_typed(fields, "timeline", str),
            epoch=_typed(fields, "epoch", int),
            staging=_typed(fields, "staging", str),
            files=tuple(_decode_file(file) for file in fields["files"]),
            rows=_typed(fields, "rows", int),
            bytes=_typed(fields, "bytes", int),
            committed_at=datetime.fromisoformat(fields["committed_at"]),
        )
        _check_consistent(record, timeline, epoch)
    except (KeyError, TypeError, ValueError) as error:
        raise _odd(path, f"{type(error).__name__}: {error}") from error
    return record


def _decode_file(fields: Any) -> CommittedFile:
    return CommittedFile(
        staged=_typed(fields, "staged", str),
        name=_typed(fields, "name", str),
        rows=_typed(fields, "rows", int),
        bytes=_typed(fields, "bytes", int),
    )


def _typed(fields: Any, key: str, kind: type[_T]) -> _T:
    value = fields[key]
    if type(value) is not kind:
        raise TypeError(f"{key} is {shorten(value)}, not {kind.__name__}")
    return value


def _check_consistent(record: CommitRecord, timeline: str, epoch: int) -> None:
    """A record is obeyed with renames: it must not name anything outside its own attempt."""
    if (record.timeline, record.epoch) != (timeline, epoch):
        raise ValueError(f"it is the record of {record.timeline}, epoch {record.epoch}")
    if not _ATTEMPT.match(record.staging) or "/" in record.staging:
        raise ValueError(f"{shorten(record.staging)} is not a staging directory")
    for file in record.files:
        inside = file.staged.startswith(f"staging/{record.staging}/")
        if not inside or ".." in PurePosixPath(file.staged).parts:
            raise ValueError(f"{shorten(file.staged)} is not in its staging directory")
        if not _PUBLISHED.match(file.name) or "/" in file.name:
            raise ValueError(f"{shorten(file.name)} is not the name of a published file")
    if record.rows != sum(file.rows for file in record.files):
        raise ValueError("its rows are not the sum of its files' rows")


def _odd(path: Path, reason: str) -> CorruptionError:
    return CorruptionError(
        "ODD_SINK_RECORD",
        f"{path} is not what holdfast wrote: {reason}.",
        fix="restore the file from a backup; if a newer holdfast wrote it, use that version.",
        path=str(path),
    )
