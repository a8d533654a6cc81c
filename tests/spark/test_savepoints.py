"""Savepoints: taken, verified, restored with another parallelism, in another place."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.sizes import SizesLog
from holdfast.checkpoint.spark_files import changelog_lineage, snapshot_entries
from holdfast.clock import SystemClock
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    RunFailedError,
    StateMismatchError,
)
from holdfast.faults import armed
from holdfast.savepoint.manifest import SavedFile
from holdfast.savepoint.store import read_savepoint, verify
from spark.processes import CountPerTotal, OtherKeyTotal, TotalWithParity
from spark.test_going_back import EDITS, SIZE, totals, written
from spark.test_resume import SCHEMA, feed
from spark.workplace import Workplace, running_totals


def feed_part(place: Workplace, part: int) -> None:
    feed(place.path / "log", EDITS[part * SIZE : (part + 1) * SIZE], f"p{part:02d}")


@pytest.mark.parametrize("backend", ["heap", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_state_moves_to_any_number_of_partitions(
    tmp_path: Path, backend: Literal["heap", "rocksdb"]
) -> None:
    place = Workplace(tmp_path, backend)
    feed_part(place, 0)
    place.run(totals(place))
    for part, parallelism in enumerate((5, 3, 1, 2), 1):
        savepoint = place.take()
        verify(savepoint)
        feed_part(place, part)
        if parallelism == 5:
            # Cut short when the copy has been rescaled: nothing has happened yet.
            with armed("restore.rescaled=raise"), pytest.raises(RunFailedError):
                place.restore(totals(place), savepoint.manifest.id, parallelism=parallelism)
        plan = place.restore(totals(place), savepoint.manifest.id, parallelism=parallelism)
        assert plan.rescales
        assert plan.timeline.origin == savepoint.manifest.id
        assert place.epochs()[-1].state["sum"].rows == len(
            {user for user, _ in EDITS[: (part + 1) * SIZE]}
        )
    assert written(place.path / "out") == Counter(running_totals(EDITS))
    assert place.take().manifest.parent == savepoint.manifest.id


@pytest.mark.parametrize("backend", ["heap", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_rescaled_state_is_counted_without_being_read(
    tmp_path: Path, backend: Literal["heap", "rocksdb"]
) -> None:
    """What Spark says of each step is noted under its uid, and its snapshots say the same."""
    place = Workplace(tmp_path, backend)

    def chained(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog(place.path / "log", SCHEMA))
        sums = flow.key_by(edits, "user").process("sum", TotalWithParity())
        parities = flow.key_by(sums, "odd").process("parity", CountPerTotal())
        flow.sink("out", parities, hf.sinks.Discard())

    feed_part(place, 0)
    place.run(chained)
    savepoint = place.take()
    noted = SizesLog(savepoint.path / "sizes").entries(savepoint.manifest.epoch)
    assert noted["sum"] > noted["parity"] > 0
    plan = place.restore(chained, savepoint.manifest.id, parallelism=5)
    directory = JobDirectory(place.runtime().storage, "job")
    assert snapshot_entries(directory.checkpoint, plan.batch + 1) == {
        step["position"]: noted[uid]
        for uid, step in savepoint.manifest.identity.operators.items()
    }
    # The next batch writes no snapshots: nothing is known without reading it.
    feed_part(place, 1)
    place.run(chained, parallelism=5)
    assert snapshot_entries(directory.checkpoint, plan.batch + 2) is None


def test_keys_are_counted_where_spark_has_counted_them(place: Workplace) -> None:
    feed_part(place, 0)
    place.run(totals(place), checkpoint={"incremental": False})  # a snapshot per epoch
    savepoint = place.take()
    verify(savepoint)
    assert savepoint.manifest.keys == {"sum": len({user for user, _ in EDITS[:SIZE]})}
    # The same where the record of the epoch has not come yet.
    directory = JobDirectory(place.runtime().storage, "job")
    early = place.savepoints.take(directory, SystemClock(), versions={})
    assert early.manifest.keys == savepoint.manifest.keys
    epoch = savepoint.manifest.epoch
    SizesLog(savepoint.path / "sizes").note_entries(epoch, {"sum": 1})
    name = f"sizes/{epoch}.entries.json"
    content = (savepoint.path / name).read_bytes()
    forged = SavedFile(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    files = tuple(forged if each.path == name else each for each in savepoint.manifest.files)
    with pytest.raises(CorruptionError, match=r"step 'sum' has .* keys instead of 1"):
        verify(replace(savepoint, manifest=replace(savepoint.manifest, files=files)))


def test_a_savepoint_works_in_another_place(place: Workplace, tmp_path: Path) -> None:
    feed_part(place, 0)
    place.run(totals(place))
    taken = place.take(label="monday")
    assert place.savepoints.find("monday").manifest == taken.manifest
    assert taken.manifest.keys == {"sum": len({user for user, _ in EDITS[:SIZE]})}
    before = {file.path: file.sha256 for file in taken.manifest.files}
    moved = tmp_path / "elsewhere" / "copy"
    shutil.copytree(taken.path, moved)
    shutil.rmtree(place.path / "jobs")
    shutil.rmtree(place.path / "savepoints")
    feed_part(place, 1)
    place.restore(totals(place), str(moved), parallelism=2)
    assert written(place.path / "out") == Counter(running_totals(EDITS[: 2 * SIZE]))
    # A restore leaves what it came from alone.
    verify(read_savepoint(moved))
    assert {file.path: file.sha256 for file in read_savepoint(moved).manifest.files} == before


def test_what_does_not_fit_is_refused_before_anything_changes(place: Workplace) -> None:
    feed_part(place, 0)
    place.run(totals(place))
    directory = JobDirectory(place.runtime().storage, "job")
    identity = directory.load()
    savepoint = place.take()

    def refused(origin: str, **options: object) -> str:
        with pytest.raises((StateMismatchError, ConflictError, CorruptionError)) as caught:
            place.restore(totals(place), origin, **options)  # type: ignore[arg-type]
        assert directory.load() == identity
        return str(caught.value.name)

    assert refused(savepoint.manifest.id, parallelism=65) == "CANNOT_RESCALE"
    assert refused(str(savepoint.path), name="other") == "SAVEPOINT_OF_ANOTHER_JOB"

    def other_key(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog(place.path / "log", SCHEMA))
        named = edits.selectExpr("user as name", "diff")
        renamed = flow.key_by(named, "name").process("sum", OtherKeyTotal())
        flow.sink("out", renamed, hf.sinks.Discard())

    with pytest.raises(StateMismatchError):
        place.restore(other_key, savepoint.manifest.id)
    assert directory.load() == identity
    assert not list(directory.path.glob("checkpoint.*"))


def test_every_kind_of_damage_is_named(place: Workplace, tmp_path: Path) -> None:
    feed_part(place, 0)
    place.run(totals(place))
    taken = place.take()

    def damaged(name: str, change: str) -> CorruptionError:
        copy = tmp_path / f"{change}"
        shutil.copytree(taken.path, copy)
        path = copy / name
        match change:
            case "flip":
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
            case "cut":
                path.write_bytes(path.read_bytes()[:-1])
            case "remove":
                path.unlink()
            case "add":
                path.with_name("more").write_text("x")
        with pytest.raises(CorruptionError) as caught:
            place.restore(totals(place), str(copy))
        return caught.value

    state = next(file.path for file in taken.manifest.files if file.path.endswith(".changelog"))
    for change, what in [
        ("flip", "has other bytes"),
        ("cut", "bytes instead of"),
        ("remove", "is missing"),
        ("add", "does not belong"),
    ]:
        error = damaged(state, change)
        assert error.name == "SAVEPOINT_DAMAGED"
        assert what in error.message


def test_a_damaged_checkpoint_is_not_saved(place: Workplace) -> None:
    """Its hashes would only prove that the damage stayed as it was."""
    feed_part(place, 0)
    place.run(totals(place))
    checkpoint = JobDirectory(place.runtime().storage, "job").checkpoint
    state = sorted(checkpoint.glob("state/0/*/*.changelog"))[-1]
    whole = state.read_bytes()
    for place_of_damage in range(min(len(whole), 400)):  # its lineage is where a block begins
        state.write_bytes(_flipped(whole, place_of_damage))
        with suppress(CorruptionError):
            changelog_lineage(state)
    state.write_bytes(_flipped(whole, len(whole) // 2))
    with pytest.raises(CorruptionError, match=state.name) as caught:
        place.take()
    assert caught.value.name == "CHECKPOINT_FILE_DAMAGED"
    assert place.savepoints.all() == []
    assert place.savepoints.leftovers() == []


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
