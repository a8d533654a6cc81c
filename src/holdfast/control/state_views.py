"""The state of a job or a savepoint as plain columns, made when it is first looked at.

Making them takes Spark, so they are kept, a few at a time, under the settings' home. What they
are made of never changes: a savepoint, or one committed epoch of a job.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobDirectory
from holdfast.clock import SystemClock
from holdfast.control.registry import Registry
from holdfast.control.runner import runtime_config
from holdfast.control.savepoints import take_savepoint, write_state
from holdfast.errors import NotFoundError, shorten
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.queries import StateView
from holdfast.savepoint.store import Progress, Savepoint, SavepointStore, silent, verify
from holdfast.storage.files import list_names, make_directory, remove_tree, storage_errors

KEPT = 8
"""How many are kept; the ones that were looked at least recently go first."""


class StateViews:
    def __init__(self, registry: Registry, settings: Any, progress: Progress = silent) -> None:
        self._registry, self._settings, self._progress = registry, settings, progress
        self._kept: Path = settings.home / "cache" / "states"
        self._savepoints = SavepointStore(settings.savepoints)

    def open(self, wanted: str) -> StateView:
        """Of a savepoint, or of the newest committed epoch of a job."""
        jobs = {row.name: row for row in self._registry.jobs()}
        if wanted not in jobs:
            return self.of_savepoint(self._savepoint(wanted))
        row = jobs[wanted]
        directory = JobDirectory.at(Path(row.spec["directory"]))
        identity, epoch = directory.load(), directory.last_committed()
        if identity is None or epoch is None:
            raise NotFoundError(
                "NOTHING_TO_READ",
                f"job {wanted!r} has no committed epoch yet.",
                fix="look again once it has; `holdfast checkpoints` shows its epochs.",
            )
        title = f"job {wanted!r}"
        name = f"job-{identity.job_id}-{identity.timeline}-{epoch}"
        if self._is_kept(name):
            return StateView(f"{title}, epoch {epoch}", self._found(name), identity)
        # Between the two looks a newer epoch may have come: what was taken says which.
        store = SavepointStore(self._kept / ".taken")
        taken = take_savepoint(self._registry, row, store, SystemClock())
        try:
            found = taken.manifest
            name = f"job-{identity.job_id}-{found.identity.timeline}-{found.epoch}"
            state = self._made(name, lambda state: self._write(taken, state))
            return StateView(f"{title}, epoch {found.epoch}", state, found.identity)
        finally:
            store.delete(taken)

    def kept(self, wanted: str) -> StateView | None:
        """What was looked at before, without making anything: of a savepoint, or of the newest
        epoch of a job among those that were."""
        jobs = {row.name: row for row in self._registry.jobs()}
        if wanted not in jobs:
            return self._kept_savepoint(self._savepoint(wanted))
        directory = JobDirectory.at(Path(jobs[wanted].spec["directory"]))
        identity = directory.load()
        if identity is None:
            return None
        prefix = f"job-{identity.job_id}-{identity.timeline}-"
        names = [name for name in list_names(self._kept) if name.startswith(prefix)]
        epochs = [int(name.removeprefix(prefix)) for name in names]
        if not epochs:
            return None
        title = f"job {wanted!r}, epoch {max(epochs)}"
        return StateView(title, self._found(f"{prefix}{max(epochs)}"), identity)

    def _kept_savepoint(self, savepoint: Savepoint) -> StateView | None:
        manifest = savepoint.manifest
        title = f"savepoint {manifest.id}"
        if manifest.kind == "canonical":
            return StateView(title, CanonicalState(savepoint.path), manifest.identity)
        name = _kept_name(savepoint)
        if not self._is_kept(name):
            return None
        return StateView(title, self._found(name), manifest.identity)

    def of_savepoint(self, savepoint: Savepoint) -> StateView:
        manifest = savepoint.manifest
        title = f"savepoint {manifest.id}"
        verify(savepoint, self._progress)
        if manifest.kind == "canonical":
            return StateView(title, CanonicalState(savepoint.path), manifest.identity)
        state = self._made(_kept_name(savepoint), lambda state: self._write(savepoint, state))
        return StateView(title, state, manifest.identity)

    def _savepoint(self, wanted: str) -> Savepoint:
        try:
            return self._savepoints.find(wanted)
        except NotFoundError as error:
            raise NotFoundError(
                "STATE_NOT_FOUND",
                f"{shorten(wanted)} is neither a job nor a savepoint.",
                fix="`holdfast ps` shows the jobs, `holdfast savepoint list` the savepoints.",
            ) from error

    def _write(self, savepoint: Savepoint, state: CanonicalState) -> None:
        write_state(savepoint, state, runtime_config(self._settings), self._progress)

    def _is_kept(self, name: str) -> bool:
        return (self._kept / name).is_dir()

    def _found(self, name: str) -> CanonicalState:
        os.utime(self._kept / name)  # looked at just now
        return CanonicalState(self._kept / name)

    def _made(self, name: str, write: Callable[[CanonicalState], None]) -> CanonicalState:
        if self._is_kept(name):
            return self._found(name)
        make_directory(self._kept)
        part = self._kept / f".{name}.{secrets.token_hex(4)}.part"
        make_directory(part)
        try:
            write(CanonicalState(part))
            with storage_errors(self._kept / name):
                if not self._is_kept(name):  # by somebody else meanwhile
                    part.rename(self._kept / name)
        finally:
            remove_tree(part)
        self._forget_oldest()
        return self._found(name)

    def _forget_oldest(self) -> None:
        paths = [self._kept / name for name in list_names(self._kept)]
        paths.sort(key=lambda path: path.stat().st_mtime)
        for path in paths[:-KEPT]:
            remove_tree(path)


def _kept_name(savepoint: Savepoint) -> str:
    """Its files are named by their sums: another savepoint of that id is another state."""
    manifest = savepoint.manifest
    digest = manifest.files[0].sha256[:8] if manifest.files else ""
    return f"{manifest.id}-{digest}"
