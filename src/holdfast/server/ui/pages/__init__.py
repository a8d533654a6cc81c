"""One module per page."""

from __future__ import annotations


def register() -> None:
    """Tell NiceGUI of all pages."""
    from holdfast.server.ui.pages import (
        cluster,
        errors,
        job,
        jobs,
        operations,
        savepoints,
        state,
    )

    for each in (jobs, job, savepoints, state, cluster, operations, errors):
        each.register()
