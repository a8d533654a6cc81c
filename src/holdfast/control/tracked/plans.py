"""What an operation would do, without doing it: what is restored, starts empty, is refused."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from holdfast.control.forks import promotion_plan, rehearsal_of
from holdfast.control.launch import Launch
from holdfast.control.operations import Place, going_back
from holdfast.control.registry import JobRow
from holdfast.control.restore_check import check_restore
from holdfast.control.running import directory_of
from holdfast.control.savepoints import take_savepoint
from holdfast.control.tracked import kinds
from holdfast.errors import NotFoundError, UsageError
from holdfast.savepoint.store import SavepointStore

PLANNED = ("start", "rescale", "rollback", "upgrade", "fork", "promote")


def plan(place: Place, job: str, told: kinds.Plan) -> dict[str, Any]:
    """Starts Spark, to compare the code with the state."""
    parameters = kinds.KINDS[told.operation].read(told.parameters)
    if isinstance(parameters, kinds.Promote):
        row = place.registry.job(job)
        found = promotion_plan(
            place, rehearsal_of(place.registry, row), parameters.sink or "keep"
        )
        return _shown(found.summary() | {"parts": []}, found.sentence, found.beyond)
    with tempfile.TemporaryDirectory(prefix="holdfast-plan-") as scratch:
        launch = _launch(place, job, parameters, Path(scratch))
        if launch.start_from is None:
            return {"sentence": "starts without an older point; its own checkpoint decides."}
        check = check_restore(launch, place.settings)
    return _shown(check.to_dict(), check.plan.sentence, check.plan.beyond)


def _shown(found: dict[str, Any], sentence: str, beyond: tuple[str, ...]) -> dict[str, Any]:
    refused = any(part["error"] is not None for part in found["parts"])
    return found | {"sentence": sentence, "beyond": list(beyond), "refused": refused}


def _launch(place: Place, job: str, told: Any, scratch: Path) -> Launch:
    match told:
        case kinds.Rescale():
            row = place.registry.job(job)
            launch = replace(Launch.from_spec(row.name, row.spec), parallelism=told.parallelism)
            return _from_here(row, launch)
        case kinds.RollBack():
            launch = going_back(
                place.registry.job(job), told.parallelism, allow_dropped=told.allow_dropped
            )
            return replace(launch, start_from=told.origin, sink_choice=told.sink or "keep")
        case kinds.Upgrade():
            row = place.registry.job(job)
            launch = Launch.from_spec(row.name, row.spec).with_code(Path(told.app))
            return _from_here(row, launch)
        case kinds.Start():
            return Launch(
                app=Path(told.app),
                directory=Path(told.directory),
                job_name=told.job_name,
                name=told.name,
                parallelism=told.parallelism,
                job_arguments=told.arguments,
                start_from=told.start_from,
                sink_choice=told.sink or "keep",
                allow_dropped=told.allow_dropped,
            )
        case kinds.Fork():
            return Launch(
                app=Path(told.app),
                directory=Path(told.directory),
                name=job,
                job_name=told.job_name,
                parallelism=told.parallelism,
                job_arguments=told.arguments,
                allow_dropped=told.allow_dropped,
                start_from=f"fork:{_fork_point(place, told.of, scratch)}",
            )
    raise UsageError(
        "NOTHING_TO_PLAN",
        f"{type(told).__name__} changes no state, so there is nothing to plan.",
        fix=f"ask for a plan of: {', '.join(PLANNED)}.",
    )


def _from_here(row: JobRow, launch: Launch) -> Launch:
    """As `rescale` and `upgrade` do it: the job's last word is what it goes on from."""
    epoch = directory_of(row).last_committed()
    if epoch is None:
        raise NotFoundError(
            "NOTHING_TO_READ",
            f"job {row.name!r} has no committed epoch yet.",
            fix="look again once it has; `holdfast checkpoints` shows its epochs.",
        )
    return replace(launch, start_from=f"checkpoint:{epoch}", sink_choice="keep")


def _fork_point(place: Place, of: str, scratch: Path) -> str:
    """A savepoint that is there, or, of a job, one that is gone after the plan."""
    rows = {row.name: row for row in place.registry.jobs()}
    if of not in rows:
        return str(place.savepoints.find(of).path)
    taken = take_savepoint(place.registry, rows[of], SavepointStore(scratch), SystemClock())
    return str(taken.path)
