"""All parts of the service together."""

from __future__ import annotations

from holdfast.clock import Clock, SystemClock
from holdfast.control.registry import Registry
from holdfast.control.tracked.dispatch import Dispatcher
from holdfast.control.tracked.log import OperationLog
from holdfast.server.access.audit import AuditLog
from holdfast.server.service.backend import Backend, server_folder
from holdfast.server.service.cluster import ClusterService
from holdfast.server.service.history import HistoryService
from holdfast.server.service.jobs import JobService
from holdfast.server.service.logs import LogService
from holdfast.server.service.machine import MachineService
from holdfast.server.service.operations import OperationService
from holdfast.server.service.savepoints import SavepointService
from holdfast.server.service.state import StateService
from holdfast.settings import LoadedSettings


class Service:
    def __init__(self, loaded: LoadedSettings, clock: Clock | None = None) -> None:
        settings, clock = loaded.values, clock or SystemClock()
        registry = Registry(settings.registry_url, clock=clock)
        registry.ensure_schema()
        log = OperationLog(registry, clock)
        self.backend = Backend(
            loaded,
            registry,
            log,
            Dispatcher(log, settings),
            AuditLog(server_folder(settings.home) / "audit.jsonl", clock),
            clock,
        )
        self.jobs = JobService(self.backend)
        self.history = HistoryService(self.backend)
        self.operations = OperationService(self.backend, self.jobs)
        self.savepoints = SavepointService(self.backend, self.operations)
        self.state = StateService(self.backend)
        self.logs = LogService(self.backend)
        self.cluster = ClusterService(self.backend)
        self.machine = MachineService(self.backend)

    def close(self) -> None:
        """Operations that were begun go on without it."""
        self.state.close()
        self.backend.registry.close()
