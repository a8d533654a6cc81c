"""Savepoints as files: found by name, refused when they are not whole, taken by the clock."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.clock import ManualClock
from holdfast.control.auto_savepoints import LABEL, AutoSavepoints
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    HoldfastError,
    NotFoundError,
    UsageError,
)
from holdfast.faults import EXIT_CODE, armed
from holdfast.savepoint.archive import import_savepoint
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.savepoint.store import Savepoint, SavepointStore, read_savepoint, verify
from holdfast.storage.files import list_names, read_json, write_json

IDENTITY = JobIdentity(
    job_id="a1",
    name="wiki",
    parallelism=2,
    key_groups=64,
    operators={"sum": {"kind": "process", "keys": [["user", "string"]], "variables": {}}},
    sources=("edits",),
)
CONTENT = b"state"


def made(
    root: Path, name: str, *, label: str = "", created: datetime | None = None
) -> Savepoint:
    """A savepoint with one file."""
    path = root / "wiki" / name
    path.mkdir(parents=True)
    (path / "data").write_bytes(CONTENT)
    manifest = Manifest(
        id=name,
        kind="native",
        created=created or datetime(2026, 11, 17, tzinfo=UTC) + timedelta(seconds=len(name)),
        epoch=7,
        identity=IDENTITY,
        sources={"edits": {"logOffset": 3}},
        keys={"sum": 12},
        label=label,
        files=(SavedFile(path="data", size=5, sha256=hashlib.sha256(CONTENT).hexdigest()),),
    )
    write_json(path / MANIFEST, manifest.to_dict())
    return Savepoint(path, manifest)


def test_a_manifest_is_read_back_as_it_was(tmp_path: Path) -> None:
    savepoint = made(tmp_path, "20261117-a")
    assert read_savepoint(savepoint.path).manifest == savepoint.manifest
    verify(savepoint)


def test_names(tmp_path: Path) -> None:
    store = SavepointStore(tmp_path)
    assert store.all() == []
    first = made(tmp_path, "20261117-a", label="monday")
    second = made(tmp_path, "20261117-ab1")
    assert [each.manifest.id for each in store.all()] == ["20261117-a", "20261117-ab1"]
    assert store.all("other") == []
    for wanted in ("monday", "20261117-a", str(first.path)):
        assert store.find(wanted).path == first.path
    assert store.find("20261117-ab").path == second.path
    assert store.find("latest", "wiki").path == second.path
    with pytest.raises(ConflictError, match="fits 2 savepoints"):
        store.find("20261117")
    for nobody in ("tuesday", "latest-ish", ""):
        with pytest.raises(HoldfastError):
            store.find(nobody, "other")
    store.delete(second)
    assert [each.manifest.id for each in store.all()] == ["20261117-a"]


def test_half_a_copy_is_said_to_be_one(tmp_path: Path) -> None:
    copy = made(tmp_path, "20261117-a").path
    (copy / MANIFEST).unlink()
    with pytest.raises(NotFoundError, match=r"manifest\.json is missing") as half:
        SavepointStore(tmp_path).find(str(copy))
    assert half.value.name == "SAVEPOINT_NOT_FOUND"
    assert str(copy) in half.value.message


def test_what_is_not_finished_is_no_savepoint(tmp_path: Path) -> None:
    store = SavepointStore(tmp_path)
    half = made(tmp_path, "20261117-half")
    (half.path / MANIFEST).unlink()
    part = tmp_path / "wiki" / ".20261117-b.part"
    part.mkdir()
    whole = made(tmp_path, "20261117-whole")
    assert [each.path for each in store.all()] == [whole.path]
    with pytest.raises(NotFoundError, match="not finished"):
        read_savepoint(half.path)
    assert store.leftovers() == sorted([half.path, part])


@pytest.mark.parametrize("point", ["savepoint.before_manifest", "savepoint.after_manifest"])
def test_a_crash_before_the_rename_leaves_no_savepoint(tmp_path: Path, point: str) -> None:
    store, model = SavepointStore(tmp_path / "here"), made(tmp_path / "model", "20261117-a")
    child = os.fork()
    if child == 0:
        with armed(f"{point}=exit"), store.draft("wiki", model.manifest.created) as draft:
            (draft.path / "data").write_bytes(CONTENT)
            draft.finish(model.manifest)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EXIT_CODE
    assert store.scan() == ([], [])
    (left,) = store.leftovers()
    assert left.name.startswith(".20261117-")
    assert (left / MANIFEST).exists() == (point == "savepoint.after_manifest")


def test_none_is_kept_inside_a_job(tmp_path: Path) -> None:
    """Not the job's own directory, not another one's, and not by a link into it."""
    directory = JobDirectory(tmp_path / "jobs", "wiki")
    directory.save(directory.create(parallelism=2, key_groups=64, backend="heap"))
    (tmp_path / "link").symlink_to(directory.path)
    for place in (
        directory.path,
        directory.path / "checkpoint" / "mine",
        tmp_path / "link" / "x",
    ):
        store = SavepointStore(place)
        with (
            pytest.raises(UsageError, match=f"inside {directory.path}.*'wiki'") as refused,
            store.draft("wiki", datetime(2026, 11, 17, tzinfo=UTC)),
        ):
            pass
        assert refused.value.name == "SAVEPOINT_INSIDE_JOB"
        with pytest.raises(UsageError, match="lies inside"):
            import_savepoint(tmp_path / "any.tar.zst", store)
    assert list_names(directory.path) == ["job.json", "logs"]
    with SavepointStore(tmp_path / "jobs" / "beside").draft("wiki", datetime.now(UTC)):
        pass


def test_what_somebody_is_at_work_on_is_not_left_over(tmp_path: Path) -> None:
    store = SavepointStore(tmp_path)
    with store.draft("wiki", datetime(2026, 11, 17, tzinfo=UTC)) as draft:
        assert draft.path.is_dir()
        assert store.leftovers() == []
        # Its process is gone; another machine's may be there.
        gone = draft.path.with_name(draft.path.name.replace(f"@{os.getpid()}@", "@4194305@"))
        gone.mkdir()
        draft.path.with_name(".20261117-c@elsewhere@1@1.part").mkdir()
        assert store.leftovers() == [gone]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"format": 2}, "SAVEPOINT_FORMAT_UNKNOWN"),
        ({"surprise": 1}, "SAVEPOINT_MANIFEST_DAMAGED"),
        ({"identity": {}}, "SAVEPOINT_MANIFEST_DAMAGED"),
        ({"created": "yesterday"}, "SAVEPOINT_MANIFEST_DAMAGED"),
        ({"files": 7}, "SAVEPOINT_MANIFEST_DAMAGED"),
    ],
)
def test_a_manifest_that_is_not_ours(tmp_path: Path, change: dict[str, Any], name: str) -> None:
    path = made(tmp_path, "20261117-a").path
    write_json(path / MANIFEST, read_json(path / MANIFEST) | change)
    with pytest.raises(CorruptionError, match=MANIFEST) as caught:
        read_savepoint(path)
    assert caught.value.name == name
    whole = made(tmp_path, "20261117-b")
    store = SavepointStore(tmp_path)
    assert [each.path for each in store.all()] == [whole.path]
    assert [error.name for error in store.scan()[1]] == [name]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    savepoint = made(tmp_path, "20261117-a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(CONTENT)
    (savepoint.path / "data").unlink()
    (savepoint.path / "data").symlink_to(elsewhere)
    with pytest.raises(CorruptionError, match="is a link"):
        verify(savepoint)


def test_automatic_ones_come_by_the_clock_and_the_oldest_go(tmp_path: Path) -> None:
    store, clock = SavepointStore(tmp_path), ManualClock()
    told: list[str] = []

    def take(label: str) -> Savepoint:
        return made(tmp_path, f"auto-{len(told)}", label=label, created=clock.now())

    def automatic() -> AutoSavepoints:
        return AutoSavepoints(
            "wiki",
            store,
            every=timedelta(hours=1),
            kept=2,
            take=take,
            tell=lambda kind, _: told.append(kind),
            clock=clock,
        )

    made(tmp_path, "by-hand", label="mine")
    savepoints = automatic()
    for minutes, count in ((0, 1), (30, 1), (31, 2), (59, 2), (2, 3)):
        clock.advance(timedelta(minutes=minutes))
        savepoints.consider()
        savepoints.end()
        assert len(told) == count
    # Another supervisor goes on in the same rhythm.
    later = automatic()
    later.consider()
    later.end()
    assert told == ["savepoint"] * 3
    assert sorted(each.manifest.id for each in store.all()) == ["auto-1", "auto-2", "by-hand"]
    assert {each.manifest.label for each in store.all()} == {LABEL, "mine"}


def test_one_that_fails_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []

    def take(label: str) -> Savepoint:
        raise NotFoundError("NOTHING_TO_SAVE", "nothing yet.")

    savepoints = AutoSavepoints(
        "wiki",
        SavepointStore(tmp_path),
        every=timedelta(hours=1),
        kept=1,
        take=take,
        tell=lambda kind, text: told.append((kind, text)),
        clock=ManualClock(),
    )
    savepoints.consider()
    savepoints.end()
    assert told == [("savepoint_failed", "NOTHING_TO_SAVE: nothing yet.")]
