"""Savepoints with corrected state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.checkpoint.copies import link
from holdfast.clock import Clock
from holdfast.control.registry import Registry
from holdfast.control.savepoints import made_canonical
from holdfast.control.state_views import StateViews
from holdfast.errors import UsageError
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.queries import Edited, edit
from holdfast.savepoint.store import Progress, Savepoint, SavepointStore, silent


def edit_savepoint(
    registry: Registry,
    settings: Any,
    wanted: str,
    statements: Sequence[str],
    clock: Clock,
    *,
    label: str = "",
    progress: Progress = silent,
) -> tuple[Savepoint, list[Edited]]:
    """A new, canonical savepoint made of one that stays as it is."""
    store = SavepointStore(settings.savepoints)
    savepoint = store.find(wanted)
    view = StateViews(registry, settings, progress).of_savepoint(savepoint)
    changes: list[Edited] = []

    def corrected(state: CanonicalState) -> None:
        for file in view.state.files():
            link(file, state.path / file.relative_to(view.state.path))
        changes.extend(edit(view, statements, state))
        if not changes:
            raise UsageError(
                "NOTHING_CHANGED",
                f"the SQL changes no key of savepoint {savepoint.manifest.id}.",
                fix="look at what it finds: `holdfast state query`.",
            )

    made = made_canonical(
        savepoint,
        store,
        clock,
        corrected,
        progress,
        label=label,
        parent=savepoint.manifest.id,
        edits=tuple(statements),
    )
    return made, changes
