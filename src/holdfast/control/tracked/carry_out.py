"""Each kind of operation, carried out. All of them may be repeated: see `Kind.fix`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import time_text
from holdfast.clock import SystemClock
from holdfast.control.forks import prepare_fork, promote
from holdfast.control.launch import Launch, restart_detached, run_detached
from holdfast.control.operations import (
    Place,
    ask,
    outcome,
    rescale,
    roll_back,
    upgrade,
    wait_for_end,
)
from holdfast.control.output_diff import compared
from holdfast.control.output_summary import bounded, summary
from holdfast.control.registry import JobRow
from holdfast.control.runner import runtime_config
from holdfast.control.running import directory_of, is_running
from holdfast.control.savepoints import canonical_copy, take_canonical, take_savepoint
from holdfast.control.tracked import kinds, plans
from holdfast.control.tracked.record import Operation
from holdfast.errors import NotFoundError
from holdfast.savepoint.store import Savepoint, verify


def carry_out(place: Place, operation: Operation) -> dict[str, Any]:
    """What it came to; raises what it failed with."""
    told = kinds.KINDS[operation.kind].read(operation.parameters)
    return _HOW[operation.kind](place, operation, told)


def _row(place: Place, operation: Operation) -> JobRow:
    return place.registry.job(operation.job)


def _detached(place: Place, launch: Launch) -> dict[str, Any]:
    return asdict(run_detached(launch, place.settings, master=None))


def _runs_already(place: Place, operation: Operation) -> bool:
    """A start that was cut short may have got that far: its supervisor lives on its own."""
    if operation.tries < 2:
        return False
    try:
        return is_running(_row(place, operation))
    except NotFoundError:
        return False


def _start(place: Place, operation: Operation, told: kinds.Start) -> dict[str, Any]:
    if _runs_already(place, operation):
        return {"job": operation.job}
    return _detached(
        place,
        Launch(
            app=Path(told.app),
            directory=Path(told.directory),
            job_name=told.job_name,
            name=told.name,
            parallelism=told.parallelism,
            job_arguments=told.arguments,
            available_now=told.available_now,
            max_epochs=told.max_epochs,
            start_from=told.start_from,
            sink_choice=told.sink,
            allow_dropped=told.allow_dropped,
        ),
    )


def _resume(place: Place, operation: Operation, told: kinds.Resume) -> dict[str, Any]:
    if _runs_already(place, operation):
        return {"job": operation.job}
    row = _row(place, operation)
    launch = Launch.from_spec(row.name, row.spec)
    return _detached(place, replace(launch, take_over=told.take_over))


def _end(place: Place, operation: Operation, kind: str, timeout: float) -> JobRow:
    row = _row(place, operation)
    if operation.tries < 2 or is_running(row):
        ask(place.registry, row, kind)
        place.say(f"the job was asked to {kind}")
    wait_for_end(row, timeout=timeout)
    return row


def _stop(place: Place, operation: Operation, told: kinds.Stop) -> dict[str, Any]:
    row = _end(place, operation, "stop", told.timeout)
    found = {"job": row.name, "state": place.registry.job(row.id).state.value}
    if told.savepoint:
        taken = take_savepoint(
            place.registry,
            row,
            place.savepoints,
            SystemClock(),
            label=told.label,
            progress=place.progress,
        )
        found |= {"savepoint": taken.manifest.id}
    return found


def _ended(place: Place, operation: Operation, told: kinds.End) -> dict[str, Any]:
    row = _end(place, operation, operation.kind, told.timeout)
    return {"job": row.name, "state": place.registry.job(row.id).state.value}


def _savepoint(place: Place, operation: Operation, told: kinds.TakeSavepoint) -> dict[str, Any]:
    row, clock = _row(place, operation), SystemClock()
    if told.canonical:
        runtime = runtime_config(place.settings)
        taken = take_canonical(
            place.registry,
            row,
            place.savepoints,
            clock,
            runtime,
            label=told.label,
            progress=place.progress,
        )
    else:
        taken = take_savepoint(
            place.registry,
            row,
            place.savepoints,
            clock,
            label=told.label,
            progress=place.progress,
        )
    return _taken(taken)


def _taken(savepoint: Savepoint) -> dict[str, Any]:
    manifest = savepoint.manifest
    return {
        "savepoint": manifest.id,
        "job": manifest.identity.name,
        "epoch": manifest.epoch,
        "keys": sum(manifest.keys.values()),
        "bytes": manifest.bytes,
    }


def _rescale(place: Place, operation: Operation, told: kinds.Rescale) -> dict[str, Any]:
    row = _row(place, operation)
    return asdict(rescale(place, row, told.parallelism, timeout=told.timeout))


def _roll_back(place: Place, operation: Operation, told: kinds.RollBack) -> dict[str, Any]:
    row = _row(place, operation)
    if operation.tries > 1 and _was_taken_back(row, operation):
        # Going back once more would undo what the job has done since.
        if not is_running(row):
            restart_detached(Launch.from_spec(row.name, row.spec), place.settings)
        return asdict(outcome(row, told.origin))
    done = roll_back(
        place,
        row,
        told.origin,
        told.sink,
        timeout=told.timeout,
        parallelism=told.parallelism,
        allow_dropped=told.allow_dropped,
    )
    return asdict(done)


def _was_taken_back(row: JobRow, operation: Operation) -> bool:
    identity = directory_of(row).load()
    began = identity.timelines[-1].began if identity else ""
    return bool(began) and began >= (time_text(operation.started or operation.created) or "")


def _upgrade(place: Place, operation: Operation, told: kinds.Upgrade) -> dict[str, Any]:
    done = upgrade(
        place,
        _row(place, operation),
        Path(told.app),
        healthy_epochs=told.healthy_epochs,
        timeout=told.timeout,
    )
    return asdict(done)


def _fork(place: Place, operation: Operation, told: kinds.Fork) -> dict[str, Any]:
    if _runs_already(place, operation):
        return {"job": operation.job}
    launch = Launch(
        app=Path(told.app),
        directory=Path(told.directory),
        name=operation.job,
        job_name=told.job_name,
        parallelism=told.parallelism,
        job_arguments=told.arguments,
        available_now=told.available_now,
        allow_dropped=told.allow_dropped,
    )
    return _detached(place, prepare_fork(place, told.of, launch))


def _promote(place: Place, operation: Operation, told: kinds.Promote) -> dict[str, Any]:
    return asdict(promote(place, _row(place, operation), told.sink, timeout=told.timeout))


def _compare(place: Place, operation: Operation, told: kinds.Compare) -> dict[str, Any]:
    first, second = (
        directory_of(place.registry.job(name)) for name in (operation.job, told.other)
    )
    return bounded(summary(compared(first, second, sink=told.sink, limit=told.limit)))


def _verify(place: Place, operation: Operation, told: kinds.OfSavepoint) -> dict[str, Any]:
    found = place.savepoints.by_id(told.savepoint)
    verify(found, place.progress)
    manifest = found.manifest
    return {
        "savepoint": manifest.id,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }


def _export(place: Place, operation: Operation, told: kinds.OfSavepoint) -> dict[str, Any]:
    """As plain columns."""
    found = place.savepoints.by_id(told.savepoint)
    runtime = runtime_config(place.settings)
    made = canonical_copy(found, place.savepoints, SystemClock(), runtime, place.progress)
    return _taken(made)


def _plan(place: Place, operation: Operation, told: kinds.Plan) -> dict[str, Any]:
    return plans.plan(place, operation.job, told)


_HOW: dict[str, Callable[[Place, Operation, Any], dict[str, Any]]] = {
    "start": _start,
    "resume": _resume,
    "stop": _stop,
    "suspend": _ended,
    "cancel": _ended,
    "savepoint": _savepoint,
    "rescale": _rescale,
    "rollback": _roll_back,
    "upgrade": _upgrade,
    "fork": _fork,
    "promote": _promote,
    "compare": _compare,
    "verify": _verify,
    "export": _export,
    "plan": _plan,
}
