"""Running pipelines as jobs in the tests' own JVM, and the truth to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, EpochStatus
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.clock import SystemClock
from holdfast.config import RuntimeConfig
from holdfast.control.registry import Registry
from holdfast.control.restore import find_start, plan_restore
from holdfast.control.runner import run_job
from holdfast.control.savepoints import take_canonical, take_savepoint
from holdfast.control.states import RunState
from holdfast.savepoint.store import Savepoint, SavepointStore

Memory = Callable[[str], tuple[hf.sinks.Memory, Callable[[], list[Any]]]]
Pipeline = Callable[[hf.Flow], None]


@dataclass(frozen=True)
class Workplace:
    """Runs pipelines as jobs, the way `holdfast run --available-now` does."""

    path: Path
    backend: Literal["heap", "rocksdb"] = "heap"

    @property
    def registry_url(self) -> str:
        return f"sqlite:///{self.path / 'registry.db'}"

    def runtime(self, heap_limit: str = "64 MiB") -> RuntimeConfig:
        return RuntimeConfig(
            storage=self.path / "jobs",
            master="local[2]",
            driver_memory="1500m",
            heap_limit=heap_limit,
        )

    def job(
        self,
        pipeline: Pipeline,
        name: str = "job",
        *,
        checkpoint: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> hf.Job:
        config = hf.CheckpointConfig(**{"backend": self.backend} | dict(checkpoint or {}))
        job = hf.Job(name, checkpoint=config, **({"parallelism": 2} | options))
        job.pipeline(pipeline)
        return job

    def run(
        self,
        pipeline: Pipeline,
        name: str = "job",
        *,
        heap_limit: str = "64 MiB",
        max_epochs: int | None = None,
        **options: Any,
    ) -> RunState:
        return run_job(
            self.job(pipeline, name, **options),
            runtime=self.runtime(heap_limit),
            registry_url=self.registry_url,
            available_now=max_epochs is None,
            max_epochs=max_epochs,
        )

    def restore(
        self,
        pipeline: Pipeline,
        origin: str,
        choice: SinkChoice | None = None,
        name: str = "job",
        *,
        parallelism: int = 2,
        allow_dropped: bool = False,
        reset_sources: tuple[str, ...] = (),
        **options: Any,
    ) -> RestorePlan:
        """`holdfast run --available-now --from ORIGIN`."""
        job = self.job(pipeline, name, parallelism=parallelism, **options)
        directory, plans = JobDirectory(self.runtime().storage, name), []

        def plan() -> RestorePlan:
            start = find_start(job, directory, origin, self.savepoints)
            found = plan_restore(
                job,
                directory,
                start,
                choice=choice,
                parallelism=parallelism,
                allow_dropped=allow_dropped,
                clock=SystemClock(),
            )
            plans.append(replace(found, reset_sources=reset_sources))
            return plans[0]

        run_job(
            job,
            runtime=self.runtime(),
            registry_url=self.registry_url,
            available_now=True,
            restore=plan,
        )
        return plans[0]

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.path / "savepoints")

    def take(self, name: str = "job", label: str = "") -> Savepoint:
        with Registry(self.registry_url) as registry:
            row = registry.job(name)
            return take_savepoint(registry, row, self.savepoints, SystemClock(), label=label)

    def take_canonical(self, name: str = "job") -> Savepoint:
        with Registry(self.registry_url) as registry:
            row, store = registry.job(name), self.savepoints
            return take_canonical(registry, row, store, SystemClock(), self.runtime())

    def began_from(self, name: str = "job") -> list[str]:
        """What the history says of each attempt."""
        with Registry(self.registry_url) as registry:
            return [row.info["from"] for row in registry.attempts(registry.job(name).id)]

    def epochs(self, name: str = "job") -> list[EpochRecord]:
        with Registry(self.registry_url) as registry:
            found = registry.epochs(registry.job(name).id)
        return [record for record in found if record.status is EpochStatus.COMMITTED]


def running_totals(
    edits: Iterable[Mapping[str, Any] | tuple[Any, ...]], keys: int = 1
) -> list[tuple[Any, ...]]:
    """The truth: what the running total per key is after each edit, in plain Python."""
    totals: dict[Any, int] = {}
    rows = []
    for edit in edits:
        values = tuple(edit.values()) if isinstance(edit, Mapping) else edit
        key, diff = values[:keys], values[keys]
        totals[key] = totals.get(key, 0) + diff
        rows.append((*key, totals[key]))
    return rows
