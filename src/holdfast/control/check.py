"""Gathers what `holdfast check` judges: the job, the settings, the machine, its past."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import EpochStatus
from holdfast.control.growth import Growth, growth
from holdfast.control.lint import JobFacts
from holdfast.control.trace import trace
from holdfast.job.job import Job
from holdfast.state.key_groups import default_key_groups
from holdfast.types import parse_size

_EPOCHS_FOR_GROWTH = 200
_LOCAL = re.compile(r"^local(?:\[(\d+|\*)(?:,\s*\d+)?\])?$")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def gather(job: Job, settings: Any) -> JobFacts:
    """Everything about a job that can be known before it starts. Starts no JVM."""
    traced = trace(job)
    cores = cores_of(settings.master)
    parallelism = job.resolved_parallelism()
    return JobFacts(
        name=job.name,
        checkpoint=job.checkpoint,
        restart=job.restart,
        trace=traced,
        parallelism=parallelism,
        parallelism_declared=job.parallelism is not None,
        # Not `resolved_key_groups`: it refuses what is a finding here.
        key_groups=job.key_groups or default_key_groups(parallelism),
        master=settings.master,
        cores=cores,
        heap_limit=settings.heap_limit,
        memory=_memory() if cores is not None else None,
        driver_memory=parse_size(settings.driver_memory, "driver_memory"),
        growth=_growth(job.name, settings, settings.heap_limit * parallelism),
        shuffle_partitions=settings.spark.get(_SHUFFLE_PARTITIONS),
        storage_is_temporary=_is_temporary(settings.storage),
        tells_when_failed=job.on_failed is not None,
    )


def cores_of(master: str) -> int | None:
    """How many tasks a master runs at once; None if only it knows."""
    local = _LOCAL.match(master)
    if local is None:
        return None
    if local[1] is None:
        return 1
    return (os.cpu_count() or 1) if local[1] == "*" else max(1, int(local[1]))


def _growth(name: str, settings: Any, limit: int) -> tuple[Growth, ...]:
    """Of a job that has run before. Looking must not create a registry, nor upgrade one."""
    from holdfast.control.registry import Registry
    from holdfast.control.tables import SCHEMA_HEAD

    with Registry(settings.registry_url) as registry:
        if registry.schema_version() != SCHEMA_HEAD:
            return ()
        known = next((job for job in registry.jobs() if job.name == name), None)
        if known is None:
            return ()
        records = registry.epochs(known.id, _EPOCHS_FOR_GROWTH)
    committed = [record for record in records if record.status is EpochStatus.COMMITTED]
    return tuple(growth(committed, limit))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # not every system says
        return None


def _is_temporary(storage: Path) -> bool:
    return storage.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
