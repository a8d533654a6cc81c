"""The server and its machine: settings, room for jobs, files that may be started."""

from __future__ import annotations

import importlib.metadata
import sys

import holdfast
from holdfast.client import models
from holdfast.control.job_files import startable
from holdfast.control.redaction import HIDDEN, SECRET_NAME, redacted_text
from holdfast.control.session import budget_of, held_claims
from holdfast.metrics.collect import collect, exposition
from holdfast.metrics.queries import Totals
from holdfast.server.service.backend import Backend


class MachineService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._totals = Totals(backend.registry)
        self._began = backend.clock.now()

    def info(self) -> models.ServerInfo:
        settings = self._backend.settings
        return models.ServerInfo(
            version=holdfast.__version__,
            spark=importlib.metadata.version("pyspark"),
            python=sys.executable,
            started=self._began,
            home=str(settings.home),
            storage=str(settings.storage),
            savepoints=str(settings.savepoints),
            registry=self._backend.registry.shown_url,
            master=settings.master,
            jobs=len(self._backend.registry.jobs()),
            job_roots=[str(root) for root in settings.server_job_roots],
        )

    def config(self) -> list[models.ConfigEntry]:
        """Every setting with its origin; secrets are hidden."""
        return [
            models.ConfigEntry(
                key=each.key,
                value=HIDDEN if SECRET_NAME.search(each.key) else redacted_text(each.shown),
                origin=each.origin,
            )
            for each in self._backend.loaded.explain()
        ]

    def session(self) -> models.Session:
        settings = self._backend.settings
        budget = budget_of(settings)
        claims = held_claims(self._backend.registry, settings)
        return models.Session(
            cores=budget.cores,
            memory=budget.memory,
            cores_used=sum(each.cores for each in claims),
            memory_used=sum(each.memory for each in claims),
            claims=[models.Claim(**vars(each)) for each in claims],
        )

    def apps(self) -> list[models.AppFile]:
        """Files that may be started."""
        roots, rows = self._backend.settings.server_job_roots, self._backend.registry.jobs()
        return [
            models.AppFile(
                path=str(each.path), jobs=list(each.jobs), registered=each.registered
            )
            for each in startable(roots, rows)
        ]

    def metrics(self, *, job: str | None = None) -> bytes:
        """The OpenMetrics text."""
        return exposition(collect(self._backend.registry, job=job, totals=self._totals))

    def is_ready(self) -> bool:
        """Whether the registry answers."""
        return self._backend.registry.schema_version() is not None
