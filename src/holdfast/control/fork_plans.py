"""What it means to start from the savepoint of another job: as a fork of it, or promoted.

Only these two may, and they say so: `fork:SAVEPOINT` and `promote:SAVEPOINT`. What they are
started with stays on record until it is carried out, so that `holdfast resume` of a start that
was cut short makes up for it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace

from holdfast.checkpoint.forking import Adoption, ForkPoint, base_suffix, output_suffixes
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import time_text
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.spark_files import batch_files
from holdfast.checkpoint.timelines import FIRST, SinkChoice, Timeline, lineage, next_name
from holdfast.clock import Clock
from holdfast.control.restore import (
    StartPoint,
    check_rescale,
    choice_needed,
    find_start,
    held_beyond,
    plan_restore,
    savepoint_start,
)
from holdfast.control.trace import trace
from holdfast.errors import ConflictError, JobDefinitionError, NotFoundError
from holdfast.job.job import Job
from holdfast.savepoint.store import SavepointStore
from holdfast.sinks.base import Delivery, Sink

_OF_ANOTHER_JOB = re.compile(r"^(?P<how>fork|promote):(?P<savepoint>.+)$", re.S)


def is_of_another_job(origin: str | None) -> bool:
    return origin is not None and _OF_ANOTHER_JOB.match(origin) is not None


def is_carried_out(origin: str | None, directory: JobDirectory) -> bool:
    """Whether a job has become a fork, or has taken its promoted fork over, before."""
    match = _OF_ANOTHER_JOB.match(origin or "")
    if match is None:
        return False
    identity = directory.load()
    if identity is None or match["how"] == "fork":
        return identity is not None
    return any(each.origin == match["savepoint"] for each in identity.timelines)


def plan_start(
    job: Job,
    directory: JobDirectory,
    origin: str,
    savepoints: SavepointStore,
    *,
    choice: SinkChoice | None,
    parallelism: int | None,
    clock: Clock,
    allow_dropped: bool = False,
    claim: bool = False,
) -> RestorePlan:
    """What a start from `origin` will do. Changes nothing."""
    match = _OF_ANOTHER_JOB.match(origin)
    if match is None:
        return plan_restore(
            job,
            directory,
            find_start(job, directory, origin, savepoints),
            choice=choice,
            parallelism=parallelism,
            allow_dropped=allow_dropped,
            claim=claim,
            clock=clock,
        )
    start = savepoint_start(savepoints.find(match["savepoint"]))
    if match["how"] == "fork":
        plan = plan_fork(job, start, parallelism=parallelism, clock=clock)
    else:
        plan = plan_promotion(
            job, directory, start, choice=choice, parallelism=parallelism, clock=clock
        )
    return replace(plan, allow_dropped=allow_dropped)


def plan_fork(
    job: Job, start: StartPoint, *, parallelism: int | None, clock: Clock
) -> RestorePlan:
    """A job of its own that goes on from there, and writes elsewhere."""
    partitions = batch_files(start.checkpoint, start.batch).start.partitions
    check_rescale(job, start.identity, partitions, parallelism)
    traced = trace(job)
    if traced.refused is not None:
        raise traced.refused
    check_rehearsable(job, traced.sinks)
    identity = forked(start, job.name, began=time_text(clock.now()) or "")
    return RestorePlan(
        origin=start.origin,
        of_job=start.identity.name,
        checkpoint=start.checkpoint,
        batch=start.batch,
        partitions=partitions,
        identity=replace(identity, parallelism=parallelism or partitions),
        canonical=start.canonical,
    )


def check_rehearsable(job: Job, sinks: Mapping[str, Sink]) -> None:
    """Whether a fork leaves alone what is not its own."""
    if job.checkpoint.mode == "none":
        raise JobDefinitionError(
            "FORK_WITHOUT_CHECKPOINTS",
            f'job {job.name!r} has CheckpointConfig(mode="none"), and would drop the state '
            "that it is forked from.",
            fix="leave the mode out.",
        )
    for uid, sink in sinks.items():
        observer = sink.delivery is Delivery.OBSERVER
        if not observer and sink.with_suffix(".fork") == sink:
            raise JobDefinitionError(
                "FORK_SINK_SHARED",
                f"sink {uid!r}, {sink.describe()}, cannot be given another place, so that the "
                f"fork {job.name!r} would write where its parent does.",
                fix=f"give {uid!r} a sink of files, hf.sinks.Console() or hf.sinks.Discard() "
                "in the code that is forked.",
            )


def forked(start: StartPoint, name: str, *, began: str) -> JobIdentity:
    """The identity of a job that begins where another one was."""
    parent = start.identity
    fork = ForkPoint(
        job=parent.name,
        job_id=parent.job_id,
        savepoint=start.origin,
        timeline=parent.timeline,
        epoch=start.batch,
    )
    first = Timeline(name=FIRST, epoch=start.batch, origin=start.origin, began=began)
    return replace(
        parent,
        job_id=secrets.token_hex(8),
        name=name,
        timeline=FIRST,
        timelines=(first,),
        # Until there is a job.json, a `checkpoint` would look like one that has lost it.
        checkpoint=f"checkpoint.{FIRST}",
        rewind_pending=False,
        output_suffix=base_suffix(name, fork),
        fork=fork,
        adoption=None,
    )


def plan_promotion(
    job: Job,
    directory: JobDirectory,
    start: StartPoint,
    *,
    choice: SinkChoice | None,
    parallelism: int | None,
    clock: Clock,
) -> RestorePlan:
    """The job goes on with the state, and the output, of its fork."""
    current = directory.load()
    if current is None:
        raise NotFoundError(
            "PARENT_NOT_FOUND",
            f"there is no job {job.name!r} in {directory.path} to which a fork could be "
            "promoted.",
            fix="start the fork's code as a job of its own.",
        )
    partitions = batch_files(start.checkpoint, start.batch).start.partitions
    check_rescale(job, start.identity, partitions, parallelism)
    identity = promoted(start, current, choice=choice, began=time_text(clock.now()) or "")
    _require_output(start, identity.adoption)
    beyond = held_beyond(job, identity, current.output_suffix, choice)
    if choice is None and any(each.epochs for each in beyond):
        raise choice_needed(job.name, identity.timelines[-1].epoch or 0, beyond)
    return RestorePlan(
        origin=start.origin,
        of_job=start.identity.name,
        checkpoint=start.checkpoint,
        batch=start.batch,
        partitions=partitions,
        identity=replace(identity, parallelism=parallelism or partitions),
        sinks=beyond,
        canonical=start.canonical,
    )


def promoted(
    start: StartPoint, current: JobIdentity, *, choice: SinkChoice | None, began: str
) -> JobIdentity:
    """The parent as it will be. Its new timeline leaves the old ones where the fork did."""
    fork = require_fork_of(start.identity, current)
    timeline = Timeline(
        name=next_name(current.timelines),
        parent=fork.timeline,
        epoch=fork.epoch,
        origin=start.origin,
        sinks=choice or "keep",
        began=began,
    )
    base = base_suffix(current.name, current.fork)
    return replace(
        start.identity,
        job_id=current.job_id,
        name=current.name,
        timeline=timeline.name,
        timelines=(*current.timelines, timeline),
        checkpoint=f"checkpoint.{timeline.name}",
        rewind_pending=choice == "rewind",
        output_suffix=f"{base}.{timeline.name}" if choice == "new" else current.output_suffix,
        fork=current.fork,
        adoption=adoption_of(start.identity, fork, start.batch),
    )


def require_fork_of(identity: JobIdentity, parent: JobIdentity) -> ForkPoint:
    """The point where a job left another, if that is still behind both."""
    fork = identity.fork
    if fork is None or fork.job_id != parent.job_id:
        raise ConflictError(
            "NOT_A_FORK",
            f"job {identity.name!r} is not a fork of job {parent.name!r}"
            + (f" as it is now; it is a {fork.sentence}." if fork else "."),
            fix=f"make one: `holdfast fork {parent.name} APP.py --name NAME`.",
        )
    if not fork.is_on_the_way_to(parent.timelines, parent.timeline):
        raise ConflictError(
            "FORK_POINT_LEFT",
            f"job {parent.name!r} has been taken back to before epoch {fork.epoch} of its "
            f"timeline {fork.timeline}, where {identity.name!r} was forked: they no longer "
            "have that epoch in common.",
            fix=f"fork it again: `holdfast fork {parent.name} APP.py --name NAME`.",
        )
    return fork


def adoption_of(identity: JobIdentity, fork: ForkPoint, batch: int) -> Adoption:
    """What a fork has written up to an epoch."""
    kept: dict[str, int | None] = {
        timeline: batch if last is None else min(last, batch)
        for timeline, last in lineage(identity.timelines, identity.timeline).items()
    }
    return Adoption(
        job=identity.name,
        job_id=identity.job_id,
        after=fork.epoch,
        kept=kept,
        directories=directories(identity, kept),
        formats={uid: output["format"] for uid, output in identity.outputs.items()},
    )


def directories(
    identity: JobIdentity, timelines: Mapping[str, object]
) -> dict[str, dict[str, str]]:
    """By file sink and timeline: where a job has written."""
    base = base_suffix(identity.name, identity.fork)
    suffixes = output_suffixes(identity.timelines, base)
    return {
        uid: {
            timeline: f"{output['directory']}{suffixes.get(timeline, base)}"
            for timeline in timelines
        }
        for uid, output in identity.outputs.items()
    }


def _require_output(start: StartPoint, adoption: Adoption | None) -> None:
    """The fork's output is there: it becomes the parent's."""
    assert adoption is not None
    for uid in adoption.directories:
        logs = adoption.logs(uid)
        newest = logs[start.identity.timeline]
        if not newest.is_claimed:
            raise NotFoundError(
                "FORK_OUTPUT_GONE",
                f"the output of sink {uid!r} of the fork {adoption.job!r} is not in "
                f"{newest.directory}; it would be missing from the output of its parent.",
                fix="put it back, or fork again.",
            )
