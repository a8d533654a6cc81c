"""From the control layer's values to those of the API."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint.record import EpochRecord, JobEvent
from holdfast.client import models
from holdfast.control.redaction import redacted, redacted_text
from holdfast.control.registry import AttemptRow
from holdfast.control.tracked.record import Operation
from holdfast.errors import HoldfastError
from holdfast.savepoint.store import Savepoint


def trouble(error: HoldfastError | None) -> models.Trouble | None:
    if error is None:
        return None
    return models.Trouble(
        name=error.name,
        message=redacted_text(error.message),
        fix=redacted_text(error.fix),
        kind=type(error).__name__,
        facts=redacted(error.facts),
    )


def attempt(row: AttemptRow) -> models.Attempt:
    return models.Attempt(
        number=row.number,
        state=row.state.value,
        pid=row.pid,
        host=row.host,
        started=row.started,
        ended=row.ended,
        began_from=row.info.get("from", ""),
        code=row.info.get("code", ""),
        failure_class=row.failure_class,
        error=trouble(row.error),
    )


def epoch(record: EpochRecord) -> models.Epoch:
    stored: dict[str, Any] = record.to_dict()
    return models.Epoch(
        **stored
        | {
            "seconds": record.seconds,
            "late_rows": record.late_rows,
            "state_rows": record.state_rows,
            "state_bytes": record.state_bytes,
        }
    )


def event(happened: JobEvent) -> models.Event:
    shown = {"text": redacted_text(happened.text), "data": redacted(happened.data)}
    return models.Event(**vars(happened) | shown)


def operation(known: Operation) -> models.Operation:
    at = known.progress
    return models.Operation(
        id=known.id,
        job=known.job,
        kind=known.kind,
        state=known.state.value,
        parameters=dict(known.parameters),
        asked_by=known.asked_by,
        created=known.created,
        started=known.started,
        ended=known.ended,
        updated=known.updated,
        tries=known.tries,
        progress=None if at is None else models.Progress(**vars(at)),
        lines=[redacted_text(line) for line in known.lines],
        result=None if known.result is None else dict(known.result),
        error=trouble(known.error),
    )


def savepoint(found: Savepoint) -> models.Savepoint:
    return models.Savepoint(**savepoint_fields(found))


def savepoint_fields(found: Savepoint) -> dict[str, Any]:
    manifest, identity = found.manifest, found.manifest.identity
    return {
        "id": manifest.id,
        "job": identity.name,
        "label": manifest.label,
        "created": manifest.created,
        "epoch": manifest.epoch,
        "timeline": identity.timeline,
        "parallelism": identity.parallelism,
        "backend": identity.backend,
        "format": manifest.kind,
        "code": identity.code,
        "keys": sum(manifest.keys.values()),
        "steps": dict(manifest.keys),
        "bytes": manifest.bytes,
        "files": len(manifest.files),
        "parent": manifest.parent,
    }
