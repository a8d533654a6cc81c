"""Savepoints of jobs that the registry knows."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.copies import copy_batch
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.spark_files import batch_files
from holdfast.clock import Clock
from holdfast.config import RuntimeConfig
from holdfast.control.registry import JobRow, Registry
from holdfast.faults import fault_point
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.store import (
    CHECKPOINT,
    Progress,
    Savepoint,
    SavepointStore,
    manifest_of,
    silent,
)
from holdfast.storage.files import remove_tree


def take_savepoint(
    registry: Registry,
    row: JobRow,
    store: SavepointStore,
    clock: Clock,
    *,
    label: str = "",
    progress: Progress = silent,
) -> Savepoint:
    """Of a job that runs or not; its driver is not asked and does not notice."""
    return store.take(
        JobDirectory.at(Path(row.spec["directory"])),
        clock,
        label=label,
        versions=versions(),
        keys=lambda epoch: _keys(registry, row, epoch),
        progress=progress,
    )


def take_canonical(
    registry: Registry,
    row: JobRow,
    store: SavepointStore,
    clock: Clock,
    runtime: RuntimeConfig,
    *,
    label: str = "",
    progress: Progress = silent,
) -> Savepoint:
    """The same with its state as plain columns. Spark reads it from a savepoint that is taken
    first, so the job does not notice this one either.

    That one lies inside an unfinished one: it is nobody's to find, also after a crash, and
    `gc` removes it then.
    """
    with store.draft(row.name, clock.now()) as aside:
        inner = SavepointStore(aside.path)
        native = take_savepoint(registry, row, inner, clock, label=label, progress=progress)
        fault_point("savepoint.native_taken")
        return canonical_copy(native, store, clock, runtime, progress)


def canonical_copy(
    savepoint: Savepoint,
    store: SavepointStore,
    clock: Clock,
    runtime: RuntimeConfig,
    progress: Progress = silent,
) -> Savepoint:
    """A savepoint of the same state, as plain columns."""
    return made_canonical(
        savepoint,
        store,
        clock,
        lambda state: write_state(savepoint, state, runtime, progress),
        progress,
        label=savepoint.manifest.label,
        parent=savepoint.manifest.parent,
    )


def made_canonical(
    savepoint: Savepoint,
    store: SavepointStore,
    clock: Clock,
    fill: Callable[[CanonicalState], None],
    progress: Progress = silent,
    **changes: Any,
) -> Savepoint:
    """A canonical savepoint at the position of another one. `fill` puts the state of process
    steps in place; `changes` are to its manifest."""
    manifest, now = savepoint.manifest, clock.now()
    identity = manifest.identity
    files = batch_files(savepoint.checkpoint, manifest.epoch)
    with store.draft(identity.name, now) as draft:
        state = CanonicalState(draft.path)
        fill(state)
        copy_batch(
            savepoint.checkpoint,
            files.without(_process_positions(identity)),
            draft.path / CHECKPOINT,
            home=draft.final / CHECKPOINT,
            flush=False,  # with the whole savepoint
        )
        made = replace(
            manifest_of(draft.id, identity, files, now),
            kind="canonical",
            keys={**manifest.keys, **state.key_counts()},
            holdfast=manifest.holdfast,
            spark=manifest.spark,
            **changes,
        )
        return draft.finish(made, progress)


def write_state(
    savepoint: Savepoint, target: CanonicalState, runtime: RuntimeConfig, progress: Progress
) -> None:
    """The state of a native savepoint as plain columns, into an empty place."""
    from holdfast.engine.exporting import export_state, reading_session

    manifest = savepoint.manifest
    identity = manifest.identity
    # A copy that lies where its files say: savepoints may have been moved.
    copy = target.path / ".checkpoint"
    files = batch_files(savepoint.checkpoint, manifest.epoch)
    copy_batch(savepoint.checkpoint, files, copy, flush=False)
    with reading_session(runtime, identity, target.path / ".spark.log") as session:
        export_state(
            session,
            copy,
            manifest.epoch,
            identity,
            target,
            told=lambda done, total: progress("read state", done, total),
        )
    remove_tree(copy)
    (target.path / ".spark.log").unlink(missing_ok=True)


def _process_positions(identity: JobIdentity) -> list[int]:
    return [
        step["position"] for step in identity.operators.values() if step["kind"] == "process"
    ]


def versions() -> dict[str, str]:
    return {
        "holdfast": importlib.metadata.version("holdfast"),
        "spark": importlib.metadata.version("pyspark"),
    }


def _keys(registry: Registry, row: JobRow, epoch: int) -> Mapping[str, int]:
    """How many keys each step had at the end of an epoch, if its record has come already."""
    records = [record for record in registry.epochs(row.id, epoch=epoch) if record.state]
    return {uid: size.rows for uid, size in records[-1].state.items()} if records else {}
