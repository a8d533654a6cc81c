"""Operations on a job that stop it and start it in another way: rescale, roll back, upgrade.

Each is a chain of steps, and how far it came can be seen in the job's files: is it running,
which parallelism and timeline does it have, which savepoints are there. So an operation that
was interrupted is not lost: repeated, it goes on where it was. The job always has a state that
it can be resumed from, for a restore changes nothing before its switch.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.clock import SystemClock
from holdfast.control.launch import Launch, restart_detached
from holdfast.control.registry import JobRow, Registry
from holdfast.control.restore_check import require_fits
from holdfast.control.running import directory_of, is_running
from holdfast.control.savepoints import take_savepoint
from holdfast.control.states import RunState
from holdfast.control.upgrades import Upgrade, forget, interrupted, note
from holdfast.errors import ConflictError, HoldfastError, NotFoundError, RunFailedError
from holdfast.faults import fault_point
from holdfast.savepoint.store import Progress, Savepoint, SavepointStore, silent

_POLL_SECONDS = 0.1
Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where the operations find everything."""

    registry: Registry
    settings: Any
    say: Say
    progress: Progress = silent

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.settings.savepoints)


def ask(registry: Registry, row: JobRow, kind: str) -> None:
    """Have a running job end in a way."""
    if not is_running(row):
        raise ConflictError(
            "JOB_NOT_RUNNING",
            f"job {row.name!r} is not running; it is {row.state}.",
            fix=f"`holdfast resume {row.name}` runs it again.",
        )
    registry.ask(row.id, kind, getpass.getuser())


def wait_for_end(row: JobRow, *, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while is_running(row):
        if time.monotonic() > deadline:
            raise RunFailedError(
                "JOB_STILL_RUNNING",
                f"job {row.name!r} has not ended after {timeout:g} s.",
                fix="its epoch may be long: wait, or `holdfast cancel` it.",
            )
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an operation has come to."""

    job: str
    savepoint: str
    parallelism: int
    timeline: str
    rolled_back: str = ""
    """Why the job was put back to how it had been, if it was."""


def rescale(place: Place, row: JobRow, parallelism: int, *, timeout: float) -> Outcome:
    """Stop with a savepoint, and go on from it with another number of partitions."""
    launch = replace(Launch.from_spec(row.name, row.spec), parallelism=parallelism)
    directory = directory_of(row)
    identity = directory.load()
    if identity is not None and identity.parallelism == parallelism:
        if not is_running(row):
            place.say(f"the state has {parallelism} partitions already; the job is resumed")
            restart_detached(launch, place.settings)
        return outcome(row, identity.timelines[-1].origin)
    epoch = directory.last_committed()
    if epoch is None:
        raise NotFoundError(
            "NOTHING_TO_SAVE",
            f"job {row.name!r} has no committed epoch yet, and so no state to move.",
            fix=f"wait for its first epoch, or start it with `--parallelism {parallelism}`.",
        )
    # What cannot work is refused while the job still runs.
    planned(place, launch, f"checkpoint:{epoch}", "keep")
    savepoint = _suspended(place, row, f"before rescaling to {parallelism}", timeout=timeout)
    _start_or_resume(place, row, launch, savepoint.manifest.id, sinks=None)
    return outcome(row, savepoint.manifest.id)


def roll_back(
    place: Place,
    row: JobRow,
    origin: str,
    sinks: SinkChoice | None,
    *,
    timeout: float,
    parallelism: int | None = None,
    allow_dropped: bool = False,
) -> Outcome:
    """Go on from an older point, with the code that the job was last started with."""
    launch = going_back(row, parallelism, allow_dropped=allow_dropped)
    plan = planned(place, launch, origin, sinks)
    say_plan(place, plan)
    if is_running(row):
        place.say("the job is suspended")
        end(place, row, "suspend", timeout=timeout)
    fault_point("operation.suspended")
    _start_or_resume(place, row, launch, origin, sinks=sinks)
    return outcome(row, plan.origin)


def going_back(row: JobRow, parallelism: int | None, *, allow_dropped: bool) -> Launch:
    launch = Launch.from_spec(row.name, row.spec)
    if parallelism is not None:
        launch = replace(launch, parallelism=parallelism)
    return replace(launch, allow_dropped=allow_dropped)


def planned(place: Place, launch: Launch, origin: str, sinks: SinkChoice | None) -> RestorePlan:
    """What a start from `origin` would do. Changes nothing."""
    going = replace(launch, start_from=origin, sink_choice=sinks)
    make = going.restore(going.load(), place.settings)
    assert make is not None
    return make()


def say_plan(place: Place, plan: RestorePlan) -> None:
    """Before it is carried out: what a rewind removes does not come back."""
    for line in (f"job {plan.identity.name}, {plan.sentence}", *plan.beyond):
        place.say(line)


def upgrade(
    place: Place, row: JobRow, app: Path, *, healthy_epochs: int, timeout: float
) -> Outcome:
    """Go on with other code; with the old one again if it fails before it has proven itself."""
    old = Launch.from_spec(row.name, row.spec)
    new = old.with_code(app)
    job = new.load()
    if job.name != row.name:
        raise ConflictError(
            "UPGRADE_OF_ANOTHER_JOB",
            f"{app} declares job {job.name!r}, not {row.name!r}.",
            fix=f"name it {row.name!r}: state belongs to the name.",
        )
    directory = directory_of(row)
    begun = interrupted(directory, row, new.app)
    old = old if begun is None else begun.old(row)
    goes_on = begun is not None and begun.has_begun(directory)
    if begun is not None and goes_on:
        place.say(f"the upgrade from savepoint {begun.savepoint} was interrupted, and goes on")
        savepoint = begun.savepoint
    else:
        savepoint = _prepared(place, row, old, new, timeout=timeout)
    try:
        if not goes_on:
            place.say(f"{app} starts from savepoint {savepoint}")
            _start(place, new, savepoint, sinks=None)
        elif not is_running(row):
            restart_detached(new, place.settings)
        fault_point("operation.started")
        _watch(place, row, healthy_epochs, timeout=timeout)
    except HoldfastError as error:
        place.say(f"it failed ({error.name}); the job goes back to {old.app}")
        if is_running(row):
            end(place, row, "cancel", timeout=timeout)
        _start_back(place, old, savepoint)
        forget(directory)
        back = outcome(row, savepoint)
        return replace(back, rolled_back=f"{error.name}: {error.message}")
    forget(directory)
    return outcome(row, savepoint)


def _prepared(place: Place, row: JobRow, old: Launch, new: Launch, *, timeout: float) -> str:
    """The savepoint that new code starts from, once the job is stopped."""
    directory = directory_of(row)
    # What cannot work is refused while the old code still runs.
    place.say("the new code is compared with the state")
    require_fits(new, directory, place.settings)
    label = f"before upgrading to {new.app.name}"
    savepoint = _suspended(place, row, label, timeout=timeout).manifest.id
    note(directory, Upgrade(app=str(new.app), savepoint=savepoint, before=old.to_dict()))
    return savepoint


def _watch(place: Place, row: JobRow, epochs: int, *, timeout: float) -> None:
    """Until so many epochs are committed by an attempt that has not failed."""
    first = max(each.number for each in place.registry.attempts(row.id))
    deadline = time.monotonic() + timeout
    while True:
        attempts = [each for each in place.registry.attempts(row.id) if each.number >= first]
        failed = [each.error for each in attempts if each.error is not None]
        if failed:
            raise failed[0]
        done = [
            record
            for record in place.registry.epochs(row.id, after=(first, -1))
            if record.status == "COMMITTED"
        ]
        if len(done) >= epochs:
            return
        if not is_running(row):
            if place.registry.job(row.id).state is RunState.FINISHED:
                return  # it had nothing more to do
            raise RunFailedError(
                "UPGRADE_ENDED",
                f"job {row.name!r} has ended before it had committed {epochs} epochs.",
                fix=f"see `holdfast logs {row.name}`.",
            )
        if time.monotonic() > deadline:
            raise RunFailedError(
                "UPGRADE_UNPROVEN",
                f"job {row.name!r} has committed {len(done)} of {epochs} epochs in "
                f"{timeout:g} s.",
                fix="give it input, ask for fewer epochs (--healthy-after), or more time "
                "(--timeout).",
            )
        time.sleep(_POLL_SECONDS)


def end(place: Place, row: JobRow, kind: str, *, timeout: float) -> None:
    ask(place.registry, row, kind)
    wait_for_end(row, timeout=timeout)


def _suspended(place: Place, row: JobRow, label: str, *, timeout: float) -> Savepoint:
    """The job's last word, as a savepoint, once it has ended."""
    if is_running(row):
        place.say("the job is suspended")
        end(place, row, "suspend", timeout=timeout)
    savepoint = take_savepoint(
        place.registry,
        row,
        place.savepoints,
        SystemClock(),
        label=label,
        progress=place.progress,
    )
    place.say(f"savepoint {savepoint.manifest.id} of epoch {savepoint.manifest.epoch}")
    fault_point("operation.saved")
    return savepoint


def _start(place: Place, launch: Launch, origin: str, *, sinks: SinkChoice | None) -> None:
    going = replace(launch, start_from=origin, sink_choice=sinks)
    restart_detached(going, place.settings)


def _start_back(place: Place, launch: Launch, origin: str) -> None:
    """Without what the new code has written, where that can be taken back."""
    try:
        _start(place, launch, origin, sinks="rewind")
    except ConflictError as refused:
        if refused.name != "SINK_CANNOT_REWIND":
            raise
        place.say(f"{refused.message} What the new code wrote stays there")
        _start(place, launch, origin, sinks="keep")


def _start_or_resume(
    place: Place, row: JobRow, launch: Launch, origin: str, *, sinks: SinkChoice | None
) -> None:
    """If the start is refused, the job goes on as it was before."""
    try:
        _start(place, launch, origin, sinks=sinks)
    except HoldfastError as error:
        place.say(f"refused ({error.name}); the job is resumed as it was")
        if not is_running(row):
            before = Launch.from_spec(row.name, row.spec)
            restart_detached(before, place.settings)
        raise


def outcome(row: JobRow, savepoint: str) -> Outcome:
    identity = directory_of(row).load()
    assert identity is not None
    return Outcome(
        job=row.name,
        savepoint=savepoint,
        parallelism=identity.parallelism,
        timeline=identity.timeline,
    )
