"""Which files of a Spark checkpoint bring one committed batch back, and no others.

    metadata                                 the query's id
    offsets/N, offsets/N-1                   what the batch read, and where it began
    commits/N                                that it is committed, and which state it wrote
    sources/<name>/…                         a file source's log of the files it has seen
    state/<op>/_metadata, _stateSchema       what Spark checks before it uses state
    state/<op>/<partition>/V_<uid>.zip       a RocksDB snapshot; its files are in SSTs/
    state/<op>/<partition>/V_<uid>.changelog what one batch changed after it; V = batch + 1

Files of a committed batch never change, so they may be linked while the job runs. Never take
all that is there: crashed attempts leave temporary files, and state that was never committed.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from holdfast.errors import CorruptionError, NotFoundError
from holdfast.storage.files import list_names, storage_errors

FULL = (".zip", ".snapshot")
CHANGES = (".changelog", ".delta")
_WITH_LINEAGE = ("v3", "v4")
"""Versions of changelogs that begin with their lineage."""
_LZ4_MAGIC = b"LZ4Block"
_LZ4_STORED = 0x10
_LZ4_HEADER = 21


@dataclass(frozen=True, kw_only=True)
class SourcePosition:
    """How far a source had been read."""

    name: str
    """The directory in sources/: its name, or its place among the sources."""
    offset: Any

    @property
    def log_offset(self) -> int | None:
        """For a source of files: the newest entry of its log that counts."""
        return self.offset.get("logOffset") if isinstance(self.offset, dict) else None


@dataclass(frozen=True, kw_only=True)
class BatchStart:
    """An entry of the offset log."""

    watermark_ms: int
    conf: Mapping[str, str]
    sources: tuple[SourcePosition, ...]

    @property
    def partitions(self) -> int:
        return int(self.conf["spark.sql.shuffle.partitions"])


@dataclass(frozen=True, kw_only=True)
class BatchFiles:
    """What is needed of a checkpoint; paths are relative to it."""

    batch: int
    start: BatchStart
    linked: tuple[str, ...]
    """To be taken as they are."""
    with_paths: tuple[str, ...]
    """They hold absolute paths into the checkpoint, which must be changed in a copy."""
    logs: Mapping[str, int]
    """Sources of files whose log is to be cut, or to be put together, up to this entry."""

    def without(self, operators: Collection[int]) -> BatchFiles:
        """The same without the state of some operators."""

        def kept(name: str) -> bool:
            folder, _, rest = name.partition("/")
            return folder != "state" or int(rest.partition("/")[0]) not in operators

        return replace(
            self,
            linked=tuple(filter(kept, self.linked)),
            with_paths=tuple(filter(kept, self.with_paths)),
        )


def spark_source_name(uid: str) -> str:
    """Spark allows letters, digits and underscores; a uid may have '.' and '-' too."""
    return uid.replace("_", "_u").replace("-", "_h").replace(".", "_d")


def committed_batches(checkpoint: Path) -> list[int]:
    """Batches that can probably be gone back to, oldest first."""
    begun = set(_numbers(checkpoint / "offsets"))
    return [
        batch
        for batch in _numbers(checkpoint / "commits")
        if batch in begun and (batch == 0 or batch - 1 in begun)
    ]


def batch_files(checkpoint: Path, batch: int) -> BatchFiles:
    """Names all files that `batch` needs. NotFoundError or CorruptionError names the first
    one that is missing or damaged."""
    checker = _Checkpoint(checkpoint)
    if batch not in _numbers(checkpoint / "commits"):
        retained = committed_batches(checkpoint)
        span = f"{retained[0]} to {retained[-1]}" if retained else "none"
        raise NotFoundError(
            "CHECKPOINT_NOT_RETAINED",
            f"{checkpoint} does not hold epoch {batch}; it has {span}.",
            fix="choose one of those; CheckpointConfig(retained=…) says how many are kept.",
            retained=retained,
        )
    start = read_start(checkpoint, batch)
    linked = ["metadata", f"offsets/{batch}", f"commits/{batch}"]
    if batch > 0:
        linked.append(f"offsets/{batch - 1}")
    for name in linked:
        checker.require(name)
    logs = {}
    for source in start.sources:
        log_offset = source.log_offset
        if log_offset is None:
            names = list_names(checkpoint / "sources" / source.name)
            linked += [f"sources/{source.name}/{name}" for name in names]
        else:
            logs[source.name] = log_offset
    with_paths: list[str] = []
    unique_ids = read_commit(checkpoint, batch).get("stateUniqueIds", {})
    for operator in checker.operators():
        stores = _Operator(checker, operator, batch)
        linked += stores.schemas()
        with_paths += stores.metadata_with_paths()
        linked += stores.state(start.partitions, unique_ids.get(operator.name))
    return BatchFiles(
        batch=batch,
        start=start,
        linked=tuple(linked),
        with_paths=tuple(with_paths),
        logs=logs,
    )


def read_start(checkpoint: Path, batch: int) -> BatchStart:
    path = checkpoint / "offsets" / str(batch)
    version, first, *lines = _log_lines(path)
    try:
        head = json.loads(first)
        return BatchStart(
            watermark_ms=head["batchWatermarkMs"],
            conf=head["conf"],
            sources=tuple(_positions(version, lines)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def read_commit(checkpoint: Path, batch: int) -> dict[str, Any]:
    path = checkpoint / "commits" / str(batch)
    _, *lines = _log_lines(path)
    try:
        return dict(json.loads(lines[0]))
    except (IndexError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def _positions(version: str, lines: list[str]) -> Iterator[SourcePosition]:
    for at, line in enumerate(lines):
        name, offset = str(at), line
        if version != "v1":  # sources have names
            name, _, offset = line.partition(":")
        yield SourcePosition(name=name, offset=None if offset == "-" else json.loads(offset))


class _Checkpoint:
    def __init__(self, path: Path) -> None:
        self.path = path

    def require(self, name: str) -> str:
        if not self.has(name):
            raise _missing(self.path / name)
        return name

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def operators(self) -> list[Path]:
        names = [name for name in list_names(self.path / "state") if name.isdigit()]
        return [self.path / "state" / name for name in sorted(names, key=int)]


class _Operator:
    """The state of one operator, as of one batch."""

    def __init__(self, checkpoint: _Checkpoint, path: Path, batch: int) -> None:
        self._checkpoint, self._path, self._batch = checkpoint, path, batch
        self._prefix = f"state/{path.name}"

    def schemas(self) -> list[str]:
        metadata = f"{self._prefix}/_metadata/metadata"
        found = [metadata] if self._checkpoint.has(metadata) else []
        for name in list_names(self._path / "_stateSchema"):
            found += self._up_to_batch(f"_stateSchema/{name}")
        return found

    def metadata_with_paths(self) -> list[str]:
        return self._up_to_batch("_metadata/v2")

    def _up_to_batch(self, folder: str) -> list[str]:
        """Files of which the name begins with the batch that wrote them."""
        names = list_names(self._path / folder)
        return [
            f"{self._prefix}/{folder}/{name}"
            for name in names
            if int(name.partition("_")[0]) <= self._batch
        ]

    def state(self, partitions: int, unique_ids: Any) -> Iterator[str]:
        stores = self._stores()
        for partition in range(partitions):
            for at, store in enumerate(stores):
                folder = f"{self._prefix}/{partition}"
                if store != "default":
                    folder += f"/{store}"
                yield from self._store_schemas(folder)
                unique_id = unique_ids[partition][at] if unique_ids else None
                yield from self._store(folder, unique_id)

    def _stores(self) -> list[str]:
        """The names of an operator's stores, in Spark's order."""
        metadata = self._path / "_metadata"
        versions = list_names(metadata / "v2")
        path = metadata / "v2" / max(versions, key=int) if versions else metadata / "metadata"
        _, *lines = _log_lines(path)
        try:
            return [store["storeName"] for store in json.loads(lines[0])["stateStoreInfo"]]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise damaged(path, error) from error

    def _store_schemas(self, folder: str) -> list[str]:
        names = list_names(self._checkpoint.path / folder / "_metadata")
        return [f"{folder}/_metadata/{name}" for name in names]

    def _store(self, folder: str, unique_id: str | None) -> Iterator[str]:
        version = self._batch + 1
        if unique_id is None:
            chain = [(number, str(number)) for number in range(version, 0, -1)]
        else:
            chain = self._lineage(folder, version, unique_id)
        for number, name in chain:
            for ending in CHANGES:
                if self._checkpoint.has(f"{folder}/{name}{ending}"):
                    yield f"{folder}/{name}{ending}"
            for ending in FULL:
                if self._checkpoint.has(f"{folder}/{name}{ending}"):
                    yield f"{folder}/{name}{ending}"
                    yield from self._sst_files(folder, f"{name}{ending}")
                    return
            # No snapshot so far: the change itself is needed.
            if not any(self._checkpoint.has(f"{folder}/{name}{each}") for each in CHANGES):
                self._checkpoint.require(f"{folder}/{name}{CHANGES[0]}")
            if number == 1:
                return  # the first version of all builds upon nothing
        oldest = chain[-1][0]
        self._checkpoint.require(f"{folder}/{oldest - 1}{FULL[0]}")

    def _lineage(self, folder: str, version: int, unique_id: str) -> list[tuple[int, str]]:
        """This version and those before it back to a snapshot, newest first."""
        newest = (version, f"{version}_{unique_id}")
        changes = self._checkpoint.path / folder / f"{newest[1]}.changelog"
        if not changes.exists():
            return [newest]
        before = [
            (item["version"], f"{item['version']}_{item['checkpointUniqueId']}")
            for item in changelog_lineage(changes)
        ]
        return [newest, *sorted(before, reverse=True)]

    def _sst_files(self, folder: str, name: str) -> list[str]:
        if not name.endswith(".zip"):
            return []
        path = self._checkpoint.path / folder / name
        return [
            self._checkpoint.require(f"{folder}/SSTs/{each}") for each in snapshot_files(path)
        ]


def snapshot_files(path: Path) -> list[str]:
    """The SST files that a RocksDB snapshot is made of."""
    return [each["dfsSstFileName"] for each in _snapshot(path)["sstFiles"]]


def snapshot_entries(checkpoint: Path, batch: int) -> dict[int, int] | None:
    """How many entries each operator has after a batch that wrote snapshots, as one does that
    moves state into other partitions; None if it did not."""
    ids: Mapping[str, Any] = read_commit(checkpoint, batch).get("stateUniqueIds", {})
    found: dict[int, int] = {}
    for operator, partitions in ids.items():
        found[int(operator)] = 0
        for partition, (unique_id, *others) in enumerate(partitions):
            folder = checkpoint / "state" / operator / str(partition)
            path = folder / f"{batch + 1}_{unique_id}{FULL[0]}"
            if others or not path.exists():  # a join has several stores, below others' names
                return None
            found[int(operator)] += int(_snapshot(path)["numKeys"])
    return found


def _snapshot(path: Path) -> dict[str, Any]:
    """What a RocksDB snapshot says about itself."""
    with storage_errors(path):
        try:
            with zipfile.ZipFile(path) as archive:
                lines = archive.read("metadata").decode().splitlines()
            found: dict[str, Any] = json.loads(lines[-1])
            if not {"sstFiles", "numKeys"} <= set(found):
                raise ValueError("it does not name its files")  # noqa: TRY301
        except (zipfile.BadZipFile, KeyError, IndexError, ValueError) as error:
            raise damaged(path, error) from error
    return found


def changelog_lineage(path: Path) -> list[dict[str, Any]]:
    """The versions that a changelog builds upon, from its first record."""
    with storage_errors(path), path.open("rb") as file:
        content = _Lz4Stream(file)
        try:
            version, lineage = _java_text(content), _java_text(content)
            if version not in _WITH_LINEAGE:
                raise ValueError(f"version {version!r} is unknown")  # noqa: TRY301
            return list(json.loads(lineage))
        except (ValueError, struct.error) as error:
            raise damaged(path, error) from error


class _Lz4Stream:
    """What lz4-java's block stream holds, from its beginning."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._waiting = file, b""

    def read(self, size: int) -> bytes:
        while len(self._waiting) < size:
            self._waiting += self._next_block()
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        return taken

    def _next_block(self) -> bytes:
        import pyarrow as pa

        head = self._file.read(_LZ4_HEADER)
        if len(head) != _LZ4_HEADER or not head.startswith(_LZ4_MAGIC):
            raise ValueError("it is not an LZ4 block stream, or cut off")
        packed, size = struct.unpack_from("<ii", head, 9)
        largest = 1 << (10 + (head[8] & 0x0F))  # that a block may become, as lz4-java has it
        if not (packed >= 0 and 0 <= size <= largest):
            raise ValueError("it has a block of an impossible size")
        body = self._file.read(packed)
        if head[8] & 0xF0 == _LZ4_STORED:
            return body
        try:
            return bytes(pa.decompress(body, size, "lz4_raw", asbytes=True))
        except (pa.ArrowInvalid, OSError) as error:  # Arrow says either of damaged blocks
            raise ValueError(str(error)) from error


def _java_text(stream: _Lz4Stream) -> str:
    (length,) = struct.unpack(">H", stream.read(2))
    return stream.read(length).decode()


def _numbers(folder: Path) -> list[int]:
    return sorted(int(name) for name in list_names(folder) if name.isdigit())


def _log_lines(path: Path) -> list[str]:
    """Version and lines of an entry of one of Spark's logs."""
    with storage_errors(path):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise _missing(path) from None
        except UnicodeDecodeError as error:
            raise damaged(path, error) from error
    lines = text.splitlines()
    if len(lines) < 2:
        raise damaged(path, "it is cut off")
    return lines


def _missing(path: Path) -> CorruptionError:
    return CorruptionError(
        "CHECKPOINT_FILE_MISSING",
        f"{path} is missing, and the epoch cannot be restored without it.",
        fix="choose another epoch (`holdfast checkpoints` lists them) or a savepoint.",
        path=str(path),
    )


def damaged(path: Path, reason: object) -> CorruptionError:
    return CorruptionError(
        "CHECKPOINT_FILE_DAMAGED",
        f"{path} is not what Spark wrote: {reason}.",
        fix="choose another epoch or a savepoint, or restore the file from a backup.",
        path=str(path),
    )
