"""How much of this machine its jobs may take together.

A job has a driver of its own, so several run side by side; before one more is started it is
added up what they may take at most. Whoever starts a job asks for room here: the server when
it is asked for a start, and every supervisor before it takes the job. Sums are pure; one start
after the other looks at who is running.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.control.check import cores_of
from holdfast.control.job_views import heap_limit_of
from holdfast.control.registry import JobRow, Registry
from holdfast.control.running import is_running
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.log import OperationLog
from holdfast.errors import ConflictError, NotFoundError
from holdfast.storage.files import exclusive_lock, make_directory
from holdfast.types import parse_size

WITHOUT_BUDGET = {"HOLDFAST_SESSION_CORES": "none", "HOLDFAST_SESSION_MEMORY": "none"}
"""For the supervisor of a job that goes on after a moment: it has had its room before."""
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a job may take at most."""

    job: str
    cores: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Budget:
    """None: no limit."""

    cores: int | None
    memory: int | None


def budget_of(settings: Any) -> Budget:
    return Budget(cores=settings.session_cores, memory=settings.session_memory)


def claim_of(row: JobRow, settings: Any, *, master: str | None = None) -> Claim:
    """With a local master the tasks run beside the driver; elsewhere only the driver does."""
    driver = parse_size(settings.driver_memory)
    cores = cores_of(master or settings.master)
    if cores is None:
        return Claim(job=row.name, cores=1, memory=driver)
    state = heap_limit_of(row, settings.heap_limit) or settings.rocksdb_memory
    return Claim(job=row.name, cores=cores, memory=driver + state)


def claim_of_new(job: str, parallelism: int | None, settings: Any) -> Claim:
    """Of a job that has never run here: the code may say less, but nobody has read it yet."""
    driver = parse_size(settings.driver_memory)
    cores = cores_of(settings.master)
    if cores is None:
        return Claim(job=job, cores=1, memory=driver)
    workers = parallelism or os.cpu_count() or 1
    return Claim(job=job, cores=cores, memory=driver + settings.heap_limit * workers)


def wanted_claim(registry: Registry, job: str, parallelism: int | None, settings: Any) -> Claim:
    """Of a job that is to be started by its name."""
    try:
        return claim_of(registry.job(job), settings)
    except NotFoundError:
        return claim_of_new(job, parallelism, settings)


def held_claims(registry: Registry, settings: Any) -> list[Claim]:
    """Of the jobs that run on this machine now."""
    attempts = registry.last_attempts()

    def master(row: JobRow) -> str | None:
        """It may have been started with another one than the settings name."""
        return attempts[row.id].info.get("master") if row.id in attempts else None

    return [
        claim_of(row, settings, master=master(row))
        for row in registry.jobs()
        if "directory" in row.spec and is_running(row)
    ]


def all_claims(registry: Registry, settings: Any) -> list[Claim]:
    """Of jobs that run, and of those that are about to: an operation is at it."""
    claims = {each.job: each for each in held_claims(registry, settings)}
    for operation in OperationLog(registry).open():
        if KINDS[operation.kind].needs_room and operation.job not in claims:
            parallelism = operation.parameters.get("parallelism")
            claim = wanted_claim(registry, operation.job, parallelism, settings)
            claims[operation.job] = claim
    return [*claims.values()]


@contextmanager
def room_for(registry: Registry, wanted: Claim, settings: Any) -> Iterator[None]:
    """Refuses a start that would go beyond the budget. Nobody else is let in meanwhile: two
    starts must not both find the last place free."""
    budget = budget_of(settings)
    if budget == Budget(cores=None, memory=None):
        yield
        return
    make_directory(settings.home)
    with exclusive_lock(settings.home / "session.lock", timeout=_PATIENCE_SECONDS):
        require_room(wanted, all_claims(registry, settings), budget)
        yield


def require_room(wanted: Claim, held: Sequence[Claim], budget: Budget) -> None:
    """Refuse a start that would go beyond the budget, and say who holds what."""
    others = [claim for claim in held if claim.job != wanted.job]
    for what, limit, needed, taken in (
        ("cores", budget.cores, wanted.cores, sum(each.cores for each in others)),
        ("memory", budget.memory, wanted.memory, sum(each.memory for each in others)),
    ):
        if limit is not None and taken + needed > limit:
            raise _full(what, limit, needed, taken, others)


def _full(
    what: str, limit: int, needed: int, taken: int, others: Iterable[Claim]
) -> ConflictError:
    def shown(amount: int) -> str:
        return f"{amount} cores" if what == "cores" else f"{amount / 1024**3:.1f} GiB"

    holders = {each.job: getattr(each, what) for each in others}
    who = ", ".join(f"{job} ({shown(amount)})" for job, amount in sorted(holders.items()))
    return ConflictError(
        "SESSION_FULL",
        f"one more job needs {shown(needed)}, and of {shown(limit)} there are {shown(taken)} "
        f"taken{': ' + who if who else ''}.",
        fix=f"stop one of them, or raise the setting session_{what}; `master`, `driver_memory` "
        "and `heap_limit` say what a job needs.",
        what=what,
        limit=limit,
        needed=needed,
        taken=taken,
        holders=holders,
    )
