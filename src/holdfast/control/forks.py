"""Rehearsing code on a job's real state: fork the job, compare, promote the fork.

As with the other operations, how far one came can be seen in the files of the two jobs, so one
that was interrupted is repeated. The parent is left alone by a fork, and by a promotion until
its switch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoint.forking import ForkPoint
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import JobEvent
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.clock import SystemClock
from holdfast.control.fork_plans import (
    is_carried_out,
    is_of_another_job,
    plan_promotion,
)
from holdfast.control.launch import Launch, restart_detached
from holdfast.control.operations import (
    Outcome,
    Place,
    end,
    outcome,
    say_plan,
)
from holdfast.control.registry import JobRow, Registry
from holdfast.control.restore import StartPoint
from holdfast.control.running import directory_of, is_running
from holdfast.control.savepoints import take_savepoint
from holdfast.control.states import RunState
from holdfast.errors import ConflictError, HoldfastError, NotFoundError, shorten
from holdfast.savepoint.store import Savepoint
from holdfast.types import check_name


def prepare_fork(place: Place, wanted: str, launch: Launch) -> Launch:
    """What to start so that a fork of a job, or of a savepoint, comes to be. `launch` has its
    code and its name."""
    name = check_name(launch.name, "job name")
    job = launch.load()  # code that cannot be loaded is refused before a savepoint is taken
    require_free(place.registry, JobDirectory(place.settings.storage, name))
    row = _job(place.registry, wanted)
    savepoint = _found(place, wanted) if row is None else _take(place, row, f"forked as {name}")
    if savepoint.manifest.identity.name == name:
        raise _taken(name, f"{name!r} is the job that is to be forked.")
    parent = _job(place.registry, savepoint.manifest.identity.name)
    if parent is not None:
        _note(
            place.registry,
            parent,
            "forked",
            f"job {name} begins as a fork, from savepoint {savepoint.manifest.id}.",
            fork=name,
            savepoint=savepoint.manifest.id,
        )
    return replace(
        launch,
        parallelism=launch.parallelism or rescaled_to(parent),
        job_arguments={**job.arguments.known_of(_told(parent)), **launch.job_arguments},
        start_from=f"fork:{_address(place, savepoint)}",
    )


def rescaled_to(parent: JobRow | None) -> int | None:
    """The parallelism that the parent was told beside its code. A fork that left it out would
    rehearse something else, and its promotion would silently undo a rescale."""
    launch = {} if parent is None else parent.spec.get("launch") or {}
    return launch.get("parallelism")


def _told(parent: JobRow | None) -> dict[str, str]:
    """The arguments of the parent's last start."""
    launch = {} if parent is None else parent.spec.get("launch") or {}
    return launch.get("job_arguments") or {}


def _found(place: Place, wanted: str) -> Savepoint:
    try:
        return place.savepoints.find(wanted)
    except NotFoundError as error:
        raise NotFoundError(
            "STATE_NOT_FOUND",
            f"{shorten(wanted)} is neither a job nor a savepoint.",
            fix="`holdfast ps` shows the jobs, `holdfast savepoint list` the savepoints.",
        ) from error


def _take(place: Place, row: JobRow, label: str) -> Savepoint:
    savepoint = take_savepoint(
        place.registry,
        row,
        place.savepoints,
        SystemClock(),
        label=label,
        progress=place.progress,
    )
    manifest = savepoint.manifest
    place.say(f"savepoint {manifest.id} of job {row.name}, epoch {manifest.epoch}")
    return savepoint


def require_free(registry: Registry, directory: JobDirectory) -> None:
    """Whether a new job may have this name. A fork that never came to be does not count."""
    if directory.load() is not None:
        raise _taken(directory.name, f"there is a job {directory.name!r} already.")
    row = _job(registry, directory.name)
    launch = {} if row is None else row.spec.get("launch") or {}
    if row is not None and (is_running(row) or not is_of_another_job(launch.get("start_from"))):
        raise _taken(directory.name, f"there is a job {directory.name!r} already.")


def _taken(name: str, why: str) -> ConflictError:
    return ConflictError(
        "FORK_NAME_TAKEN",
        why,
        fix=f"choose another --name; `holdfast resume {name}` goes on with the job that is "
        "there.",
    )


def _job(registry: Registry, wanted: str) -> JobRow | None:
    """By name or id; the beginning of an id might as well be that of a savepoint's."""
    for row in registry.jobs():
        if wanted in (row.name, row.id):
            return row
    return None


def _address(place: Place, savepoint: Savepoint) -> str:
    kept = savepoint.path.parent.parent == place.savepoints.root
    return savepoint.manifest.id if kept else str(savepoint.path)


@dataclass(frozen=True)
class Rehearsal:
    """A fork and its parent."""

    fork: JobRow
    parent: JobRow
    point: ForkPoint

    @property
    def directory(self) -> JobDirectory:
        return directory_of(self.fork)


def rehearsal_of(registry: Registry, row: JobRow) -> Rehearsal:
    point = _identity(row).fork
    if point is None:
        raise ConflictError(
            "NOT_A_FORK",
            f"job {row.name!r} is not a fork of another one.",
            fix="`holdfast fork JOB APP.py --name NAME` makes one.",
        )
    parent = _job(registry, point.job)
    identity = None if parent is None else directory_of(parent).load()
    if parent is None or identity is None or identity.job_id != point.job_id:
        raise NotFoundError(
            "PARENT_NOT_FOUND",
            f"job {row.name!r} is a {point.sentence}, and that job (id {point.job_id}) is not "
            "here any more.",
            fix=f"go on with {row.name!r} as a job of its own.",
        )
    return Rehearsal(row, parent, point)


def _identity(row: JobRow) -> JobIdentity:
    identity = directory_of(row).load()
    if identity is None:
        raise NotFoundError(
            "NOTHING_TO_READ",
            f"job {row.name!r} has no committed epoch yet.",
            fix="look again once it has; `holdfast checkpoints` shows its epochs.",
        )
    return identity


def promotion_plan(place: Place, rehearsal: Rehearsal, sinks: SinkChoice | None) -> RestorePlan:
    """What a promotion would do now. Changes nothing, and asks nobody to stop."""
    directory, identity = rehearsal.directory, _identity(rehearsal.fork)
    epoch = directory.last_committed()
    launch = _promoted_launch(rehearsal)
    job = launch.load()
    with launch.in_directory():
        return plan_promotion(
            job,
            directory_of(rehearsal.parent),
            StartPoint(
                origin=f"checkpoint:{epoch}",
                checkpoint=directory.checkpoint,
                batch=-1 if epoch is None else epoch,
                identity=identity,
            ),
            choice=sinks,
            parallelism=job.parallelism,
            clock=SystemClock(),
        )


def promote(place: Place, row: JobRow, sinks: SinkChoice | None, *, timeout: float) -> Outcome:
    """The code, the state and the output of a fork become its parent's."""
    rehearsal = rehearsal_of(place.registry, row)
    parent = rehearsal.parent
    launch = _promoted_launch(rehearsal)
    done = _done_with(place, rehearsal)
    if done is not None:
        if not is_running(parent):
            place.say(f"{row.name} was promoted already; {parent.name} is resumed")
            restart_detached(launch, place.settings)
        return outcome(parent, done)
    # What cannot work is refused while both still run.
    say_plan(place, promotion_plan(place, rehearsal, sinks))
    if is_running(row):
        place.say(f"{row.name} is stopped")
        end(place, row, "stop", timeout=timeout)
    savepoint = _take(place, row, f"promoted to {parent.name}")
    ran = is_running(parent)
    if ran:
        place.say(f"{parent.name} is suspended")
        end(place, parent, "suspend", timeout=timeout)
    origin = savepoint.manifest.id
    place.say(f"{parent.name} goes on with {launch.app}")
    before = Launch.from_spec(parent.name, parent.spec).to_dict()
    _note(
        place.registry,
        parent,
        "promotion",
        f"goes on with the code and state of job {row.name}, savepoint {origin}.",
        fork=row.name,
        savepoint=origin,
        before=before,
    )
    _start_promoted(place, parent, replace(launch, sink_choice=sinks), origin, ran=ran)
    with suppress(NotFoundError):
        place.registry.set_state(row.id, RunState.FINISHED)
    _note(
        place.registry,
        row,
        "promoted",
        f"job {parent.name} goes on from savepoint {origin}, with this code.",
        parent=parent.name,
        savepoint=origin,
    )
    return outcome(parent, origin)


def _start_promoted(
    place: Place, parent: JobRow, launch: Launch, savepoint: str, *, ran: bool
) -> None:
    """If the start is refused before the switch, the parent is as it was, and goes on."""
    origin = f"promote:{savepoint}"
    try:
        restart_detached(replace(launch, start_from=origin), place.settings)
    except HoldfastError as error:
        switched = is_carried_out(origin, directory_of(parent))
        if not switched and not is_running(parent):
            place.say(f"refused ({error.name}); {parent.name} is as it was")
            place.registry.register_job(parent.name, parent.spec)
            if ran:
                before = Launch.from_spec(parent.name, parent.spec)
                restart_detached(before, place.settings)
        raise


def _promoted_launch(rehearsal: Rehearsal) -> Launch:
    """How the parent runs with the fork's code."""
    before = Launch.from_spec(rehearsal.parent.name, rehearsal.parent.spec)
    fork = Launch.from_spec(rehearsal.fork.name, rehearsal.fork.spec)
    declared = fork.load().declared_name
    return replace(
        before,
        app=fork.app,
        job_name=declared,
        name=None if declared == rehearsal.parent.name else rehearsal.parent.name,
        parallelism=fork.parallelism,
        job_arguments=fork.job_arguments,
        start_from=None,
        sink_choice=None,
        allow_dropped=False,
    )


def _done_with(place: Place, rehearsal: Rehearsal) -> str | None:
    """The savepoint by which the fork was promoted as it is now, if it was."""
    identity, fork = _identity(rehearsal.parent), _identity(rehearsal.fork)
    now = next(each for each in identity.timelines if each.name == identity.timeline)
    for savepoint in place.savepoints.all(rehearsal.fork.name):
        manifest = savepoint.manifest
        if (
            manifest.id == now.origin
            and manifest.identity.job_id == fork.job_id
            and manifest.identity.timeline == fork.timeline
            and manifest.epoch == rehearsal.directory.last_committed()
        ):
            return manifest.id
    return None


def _note(registry: Registry, row: JobRow, kind: str, text: str, **data: Any) -> None:
    registry.add_event(
        row.id, JobEvent(at=SystemClock().now(), kind=kind, text=text, data=data)
    )
