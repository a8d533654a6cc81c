"""What all parts of the service share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.clock import Clock
from holdfast.control.registry import Registry
from holdfast.control.tracked.dispatch import Dispatcher
from holdfast.control.tracked.log import OperationLog
from holdfast.savepoint.store import SavepointStore
from holdfast.server.access.audit import AuditLog
from holdfast.settings import LoadedSettings, Settings


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

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.settings.savepoints)
