"""What all parts of the service share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.clock import Clock
from holdfast.control.registry import JobRow, Registry
from holdfast.control.tracked.dispatch import Dispatcher
from holdfast.control.tracked.log import OperationLog
from holdfast.errors import NotFoundError
from holdfast.savepoint.store import SavepointStore
from holdfast.server.access.audit import AuditLog
from holdfast.settings import LoadedSettings, Settings
from holdfast.types import check_name


def server_folder(home: Path) -> Path:
    """Where the server keeps its own things, for its owner only."""
    return home / "server"


@dataclass(frozen=True)
class Backend:
    loaded: LoadedSettings
    registry: Registry
    operations: OperationLog
    dispatcher: Dispatcher
    audit: AuditLog
    clock: Clock

    @property
    def settings(self) -> Settings:
        return self.loaded.values

    def job(self, name: str) -> JobRow:
        """By its whole name or id: what a URL says must not mean another job tomorrow."""
        found = self.registry.job(check_name(name, "job name"))
        if name in (found.name, found.id):
            return found
        raise NotFoundError(
            "JOB_NOT_FOUND",
            f"there is no job {name!r}.",
            fix=f"did you mean {found.name!r}?",
        )

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.settings.savepoints)
