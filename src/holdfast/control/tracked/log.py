"""Operations, kept in the registry's database, so that none is lost with a process."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from holdfast.clock import Clock, SystemClock
from holdfast.control.registry import Registry
from holdfast.control.tables import operations as table
from holdfast.control.tracked.record import (
    OPEN,
    WANTED,
    Operation,
    OperationProgress,
    OperationState,
    OperationWorker,
)
from holdfast.errors import ConflictError, HoldfastError, NotFoundError
from holdfast.storage.known_secrets import hide_in

MOST_LINES = 200
"""What an operation says is kept up to this many lines, the newest."""
_WITHOUT_LIMIT = 2**31


class OperationLog:
    def __init__(self, registry: Registry, clock: Clock | None = None) -> None:
        self.registry, self._database = registry, registry.database
        self._clock = clock or SystemClock()

    def add(
        self,
        job: str,
        kind: str,
        parameters: Mapping[str, Any],
        *,
        asked_by: str,
        exclusive: bool,
        key: str | None = None,
    ) -> tuple[Operation, bool]:
        """Note what is to be done. With a `key` that was used before: what was noted then, and
        False. A job has one exclusive operation at a time; a second is refused."""
        known = self.by_key(asked_by, key)
        if known is not None:
            return _same(known, job, kind, parameters), False
        now = self._clock.now()
        values: dict[str, Any] = {
            "id": secrets.token_hex(8),
            "job": job,
            "kind": kind,
            "state": OperationState.PENDING.value,
            "parameters": dict(parameters),
            "asked_by": asked_by,
            "key": key,
            "holds": job if exclusive else None,
            "created": now,
            "updated": now,
            "tries": 0,
            "lines": [],
        }
        try:
            with self._database.write() as connection:
                created = connection.execute(insert(table).values(values).returning(table))
                return _operation(created.one()), True
        except HoldfastError as error:
            # Who came first shows in the database alone: two servers may share it.
            if not isinstance(error.__cause__, IntegrityError):
                raise
            known = self.by_key(asked_by, key)
            if known is not None:
                return _same(known, job, kind, parameters), False
            raise self._held(job) from error

    def _held(self, job: str) -> ConflictError:
        query = select(table).where(table.c.holds == job)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        which = "another operation" if row is None else f"operation {row.id} ({row.kind})"
        return ConflictError(
            "OPERATION_RUNNING",
            f"{which} on job {job!r} is not over yet.",
            fix="wait for its end, or cancel it; a job has one operation at a time.",
            operation=None if row is None else row.id,
            job=job,
        )

    def by_key(self, asked_by: str, key: str | None) -> Operation | None:
        if key is None:
            return None
        query = select(table).where(table.c.asked_by == asked_by, table.c.key == key)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _operation(row)

    def get(self, operation_id: str) -> Operation:
        with self._database.read() as connection:
            row = connection.execute(
                select(table).where(table.c.id == operation_id)
            ).one_or_none()
        if row is None:
            raise NotFoundError(
                "OPERATION_NOT_FOUND",
                f"there is no operation {operation_id!r}.",
                fix="`holdfast operation list` and GET /api/v1/operations list them.",
            )
        return _operation(row)

    def newest(
        self,
        *,
        job: str | None = None,
        state: OperationState | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> list[Operation]:
        """The newest first; `before` is where a page ended: (created, id)."""
        query = select(table).order_by(table.c.created.desc(), table.c.id.desc()).limit(limit)
        if job is not None:
            query = query.where(table.c.job == job)
        if state is not None:
            query = query.where(table.c.state == state.value)
        if before is not None:
            query = query.where(tuple_(table.c.created, table.c.id) < before)
        with self._database.read() as connection:
            return [_operation(row) for row in connection.execute(query)]

    def changed_since(self, moment: datetime) -> list[Operation]:
        query = select(table).where(
            (table.c.updated > moment) | table.c.state.in_([each.value for each in OPEN])
        )
        with self._database.read() as connection:
            return [_operation(row) for row in connection.execute(query)]

    def open(self) -> list[Operation]:
        """Those that are not over, oldest first."""
        query = (
            select(table)
            .where(table.c.state.in_([each.value for each in OPEN]))
            .order_by(table.c.created)
        )
        with self._database.read() as connection:
            return [_operation(row) for row in connection.execute(query)]

    # -- old ones ----------------------------------------------------------------------

    def ended_beyond(self, kept: int, *, before: datetime, limit: int) -> list[str]:
        """Ids of those that are over since `before`, without the newest `kept`."""
        newest = table.c.created.desc(), table.c.id.desc()
        over = table.c.state.not_in([each.value for each in OPEN])
        beyond = select(table.c.id, table.c.ended).where(over).order_by(*newest).offset(kept)
        # An offset without a limit is not known to SQLite.
        old = beyond.limit(_WITHOUT_LIMIT).subquery()
        query = select(old.c.id).where(old.c.ended < before).limit(limit)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def forget(self, operation_ids: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute(
                delete(table).where(
                    table.c.id.in_(operation_ids),
                    table.c.state.not_in([each.value for each in OPEN]),
                )
            )

    # -- the process that carries it out ----------------------------------------------

    def hand_out(self, operation: Operation) -> Operation | None:
        """To one more process; None if somebody else has done that, or nobody wants it now."""
        return self._advance(operation.id, operation.tries, {"tries": operation.tries + 1})

    def begin(self, operation_id: str, tries: int, worker: OperationWorker) -> Operation | None:
        """By the process that it was handed out to; None if it has another one by now."""
        return self._advance(
            operation_id,
            tries,
            {
                "state": OperationState.RUNNING.value,
                "worker": asdict(worker),
                "started": func.coalesce(table.c.started, self._clock.now()),
            },
        )

    def _advance(
        self, operation_id: str, tries: int, values: Mapping[str, Any]
    ) -> Operation | None:
        with self._database.write() as connection:
            row = connection.execute(
                update(table)
                .where(
                    table.c.id == operation_id,
                    table.c.tries == tries,
                    table.c.state.in_([each.value for each in WANTED]),
                )
                .values(updated=self._clock.now(), **values)
                .returning(table)
            ).one_or_none()
        return None if row is None else _operation(row)

    def say(self, operation_id: str, line: str) -> None:
        with self._database.write() as connection:
            lines = connection.execute(
                select(table.c.lines).where(table.c.id == operation_id)
            ).scalar_one()
            self._set(connection, operation_id, lines=[*lines, line][-MOST_LINES:])

    def note_progress(self, operation_id: str, progress: OperationProgress) -> None:
        with self._database.write() as connection:
            self._set(connection, operation_id, progress=asdict(progress))

    def succeed(self, operation_id: str, result: Mapping[str, Any]) -> None:
        self._end(operation_id, OperationState.SUCCEEDED, result=dict(result))

    def fail(self, operation_id: str, error: HoldfastError) -> None:
        self._end(operation_id, OperationState.FAILED, error=json.loads(error.to_json()))

    def interrupt(self, operation_id: str, error: HoldfastError) -> None:
        self._end(operation_id, OperationState.INTERRUPTED, error=json.loads(error.to_json()))

    def begin_cancel(self, operation_id: str) -> Operation | None:
        """From here on no process begins it any more; None if nobody is to carry it out."""
        with self._database.write() as connection:
            row = connection.execute(
                update(table)
                .where(
                    table.c.id == operation_id,
                    table.c.state.in_([each.value for each in WANTED]),
                )
                .values(state=OperationState.CANCELLING.value, updated=self._clock.now())
                .returning(table)
            ).one_or_none()
        return None if row is None else _operation(row)

    def cancel(self, operation_id: str, error: HoldfastError) -> None:
        self._end(operation_id, OperationState.CANCELLED, error=json.loads(error.to_json()))

    def _end(self, operation_id: str, state: OperationState, **values: Any) -> None:
        values |= {"state": state.value, "ended": self._clock.now(), "holds": None}
        with self._database.write() as connection:
            self._set(connection, operation_id, **values)

    def _set(self, connection: Any, operation_id: str, **values: Any) -> None:
        """Of one that is not over: the last word stays."""
        connection.execute(
            update(table)
            .where(table.c.id == operation_id, table.c.state.in_([each.value for each in OPEN]))
            .values(updated=self._clock.now(), **_without_secrets(values))
        )


def _without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of what has been said: the process may know some."""
    told = ("lines", "progress", "result", "error")
    return {name: hide_in(value) if name in told else value for name, value in values.items()}


def _same(known: Operation, job: str, kind: str, parameters: Mapping[str, Any]) -> Operation:
    asked = (job, kind, json.dumps(dict(parameters), sort_keys=True))
    if asked != (known.job, known.kind, json.dumps(dict(known.parameters), sort_keys=True)):
        raise ConflictError(
            "IDEMPOTENCY_KEY_REUSED",
            f"the key {known.key!r} was used for operation {known.id} ({known.kind} of job "
            f"{known.job!r}), which is something else.",
            fix="use a new key for a new operation.",
            operation=known.id,
        )
    return known


def _operation(row: Row[Any]) -> Operation:
    fields = dict(row._mapping)
    del fields["holds"]
    fields["state"] = OperationState(row.state)
    fields["lines"] = tuple(row.lines)
    if row.worker is not None:
        fields["worker"] = OperationWorker(**row.worker)
    if row.progress is not None:
        fields["progress"] = OperationProgress(**row.progress)
    if row.error is not None:
        fields["error"] = HoldfastError.from_fields(row.error)
    return Operation(**fields)
