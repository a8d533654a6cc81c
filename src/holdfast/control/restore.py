"""What `--from` means for a job, worked out before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.checkpoint.forking import base_suffix
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.kafka_epochs import cannot_rewind, epochs_beyond
from holdfast.checkpoint.record import time_text
from holdfast.checkpoint.restore_plan import RestorePlan, SinkBeyond
from holdfast.checkpoint.spark_files import batch_files
from holdfast.checkpoint.timelines import (
    SinkChoice,
    Timeline,
    lineage,
    next_name,
    removed_on_the_way,
)
from holdfast.clock import Clock
from holdfast.control.trace import trace
from holdfast.errors import ConflictError, NotFoundError, StateMismatchError, UsageError
from holdfast.job.job import Job
from holdfast.savepoint.store import Savepoint, SavepointStore, verify
from holdfast.sinks import Delivery, Kafka
from holdfast.storage.sink_logs import log_of

_CHECKPOINT = re.compile(r"^checkpoint:(?P<epoch>\d+)$")
Planned = Callable[[], RestorePlan]
"""Makes the plan, once the lease is held."""


@dataclass(frozen=True, kw_only=True)
class StartPoint:
    """State to go on from: whose it is, and where it lies."""

    origin: str
    checkpoint: Path
    batch: int
    identity: JobIdentity
    canonical: Path | None = None
    """Where the state of process steps lies as plain columns, if it does."""
    spark: str = ""
    """The version that wrote it, if another one may have."""


def find_start(
    job: Job, directory: JobDirectory, origin: str, savepoints: SavepointStore
) -> StartPoint:
    """`checkpoint:N` of the job itself, or a savepoint."""
    match = _CHECKPOINT.match(origin)
    if match is None:
        return _savepoint_start(job, origin, savepoints)
    identity = directory.load()
    if identity is None or job.checkpoint.mode == "none":
        raise NotFoundError(
            "NO_CHECKPOINT",
            f"job {job.name!r} has no checkpoint to start from: it has never run, or has "
            'CheckpointConfig(mode="none").',
            fix="start it without --from, or from a savepoint.",
        )
    return StartPoint(
        origin=origin,
        checkpoint=directory.checkpoint,
        batch=int(match["epoch"]),
        identity=identity,
    )


def _savepoint_start(job: Job, origin: str, savepoints: SavepointStore) -> StartPoint:
    try:
        savepoint = savepoints.find(origin, job.name)
    except NotFoundError as missing:
        try:
            savepoint = savepoints.find(origin)  # of another job: that is the better reason
        except (NotFoundError, ConflictError):
            raise missing from None
    manifest = savepoint.manifest
    if manifest.identity.name != job.name:
        raise ConflictError(
            "SAVEPOINT_OF_ANOTHER_JOB",
            f"savepoint {manifest.id} is of job {manifest.identity.name!r}, not of "
            f"{job.name!r}.",
            fix=f"name the job {manifest.identity.name!r}, choose a savepoint of this one "
            f"(`holdfast savepoint list {job.name}`), or start a job of its own from it "
            "(`holdfast fork`).",
        )
    return savepoint_start(savepoint)


def savepoint_start(savepoint: Savepoint) -> StartPoint:
    """Of whichever job."""
    verify(savepoint)
    manifest = savepoint.manifest
    return StartPoint(
        origin=manifest.id,
        checkpoint=savepoint.checkpoint,
        batch=manifest.epoch,
        identity=manifest.identity,
        canonical=savepoint.path if manifest.kind == "canonical" else None,
        spark=manifest.spark,
    )


def plan_restore(
    job: Job,
    directory: JobDirectory,
    start: StartPoint,
    *,
    choice: SinkChoice | None,
    parallelism: int | None,
    clock: Clock,
    allow_dropped: bool = False,
    claim: bool = False,
) -> RestorePlan:
    """What will be done. Changes nothing."""
    if claim and _CHECKPOINT.match(start.origin):
        raise UsageError(
            "NOTHING_TO_CLAIM",
            f"{start.origin} is the job's own already; --claim is for savepoints.",
            fix="leave --claim out.",
        )
    files = batch_files(start.checkpoint, start.batch)
    check_rescale(job, start.identity, files.start.partitions, parallelism)
    current = directory.load() or start.identity
    known = {each.name: each for each in (*start.identity.timelines, *current.timelines)}
    timeline = Timeline(
        name=next_name(tuple(known.values())),
        parent=start.identity.timeline,
        epoch=start.batch,
        origin=start.origin,
        sinks=choice or "keep",
        began=time_text(clock.now()) or "",
    )
    base = base_suffix(job.name, current.fork)
    suffix = f"{base}.{timeline.name}" if choice == "new" else current.output_suffix
    identity = replace(
        start.identity,
        job_id=current.job_id,
        parallelism=parallelism or files.start.partitions,
        timeline=timeline.name,
        timelines=(*known.values(), timeline),
        checkpoint=f"checkpoint.{timeline.name}",
        rewind_pending=choice == "rewind",
        output_suffix=suffix,
    )
    _refuse_a_hole(job, identity, choice)
    beyond = held_beyond(job, identity, current.output_suffix, choice)
    if choice is None and any(each.epochs for each in beyond):
        raise choice_needed(job.name, start.batch, beyond)
    return RestorePlan(
        origin=start.origin,
        checkpoint=start.checkpoint,
        batch=start.batch,
        partitions=files.start.partitions,
        identity=identity,
        sinks=beyond,
        canonical=start.canonical,
        spark=start.spark,
        allow_dropped=allow_dropped,
        claim=claim,
    )


def _refuse_a_hole(job: Job, identity: JobIdentity, choice: SinkChoice | None) -> None:
    """Output that led to a point may be gone, because the job was once taken back further."""
    if choice == "new":
        return  # a directory of its own, that begins here
    removed = removed_on_the_way(identity.timelines, identity.timeline)
    if removed is None:
        return
    epochs = "all epochs" if removed.after is None else f"the epochs after {removed.after}"
    raise ConflictError(
        "OUTPUT_WAS_REMOVED",
        f"job {job.name!r}: the output of {epochs} of timeline {removed.timeline} led to "
        f"{identity.timelines[-1].origin}, but was removed when timeline {removed.by.name} "
        f"began ({removed.by.origin}, --sink rewind). Going on from there would leave a hole.",
        fix="start from that earlier point, or a later one of a newer timeline; or begin a new "
        "directory with --sink new.",
    )


def check_rescale(job: Job, identity: JobIdentity, stored: int, wanted: int | None) -> None:
    if wanted is None or wanted == stored:
        return
    if identity.backend == "memory":
        raise StateMismatchError(
            "CANNOT_RESCALE",
            f"job {job.name!r}: its state has {stored} partitions and {wanted} are wanted, but "
            'Spark cannot rescale state of its in-memory store (backend="memory").',
            fix=f"say parallelism={stored}.",
        )
    if wanted > identity.key_groups:
        raise StateMismatchError(
            "CANNOT_RESCALE",
            f"job {job.name!r} has {identity.key_groups} key groups, so that more than "
            f"{identity.key_groups} partitions, such as {wanted}, would have nothing to do.",
            fix=f"say parallelism={identity.key_groups} or less; the number of key groups is "
            "fixed when a job is created.",
        )


def held_beyond(
    job: Job, identity: JobIdentity, suffix: str, choice: SinkChoice | None
) -> tuple[SinkBeyond, ...]:
    """What the sinks hold that does not lead to the new timeline."""
    traced = trace(job)
    if traced.refused is not None:
        raise traced.refused
    if traced.lost_at and choice is None:
        raise ConflictError(
            "SINKS_UNKNOWN",
            f"the sinks of job {job.name!r} cannot be looked up without Spark: the pipeline "
            f"cannot be followed ({traced.lost_at}).",
            fix="say what is to become of what they hold beyond that epoch: --sink rewind, "
            "keep or new.",
        )
    kept = lineage(identity.timelines, identity.timeline)
    found = []
    for uid, declared in traced.sinks.items():
        sink = declared.with_suffix(suffix)
        if choice == "rewind" and not sink.rewindable:
            raise cannot_rewind(uid, sink)
        if isinstance(sink, Kafka) and sink.delivery is Delivery.TRANSACTIONAL:
            epochs = epochs_beyond(sink, job.name, uid, identity.timelines, kept)
            found.append(SinkBeyond(uid=uid, sink=sink.describe(), epochs=epochs, rows=None))
            continue
        log = log_of(
            uid, sink, job_id=identity.job_id, job_name=job.name, timeline=identity.timeline
        )
        records = log.beyond(kept) if log is not None else []
        found.append(
            SinkBeyond(
                uid=uid,
                sink=sink.describe(),
                epochs=len(records),
                rows=sum(record.rows for record in records),
            )
        )
    return tuple(found)


def choice_needed(job: str, epoch: int, beyond: tuple[SinkBeyond, ...]) -> ConflictError:
    held = "; ".join(f"sink {each.uid!r} holds {each.words}" for each in beyond if each.epochs)
    return ConflictError(
        "SINK_CHOICE_NEEDED",
        f"job {job!r} would go on after epoch {epoch}, but {held} that came after it.",
        fix="say what is to become of them: --sink rewind removes them, --sink keep leaves "
        "them (rows that come again are there twice), --sink new writes to a new directory or "
        "topic.",
        sinks=[vars(each) for each in beyond],
    )
