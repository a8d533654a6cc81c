"""The registry: which jobs there are, every attempt to run them, every epoch they made.

It is what outlives a driver. Nothing a job needs in order to be exact is kept here: the
checkpoint holds that, and a lost registry costs history, not data.
"""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, Select, func, insert, select, tuple_, update

from holdfast.checkpoint.record import EpochRecord, EpochStatus, JobEvent, SinkResult
from holdfast.clock import Clock, SystemClock
from holdfast.control import tables
from holdfast.control.database import BUSY_SECONDS, Database
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError, NotFoundError, RunFailedError, UsageError
from holdfast.failure import FailureClass, classify
from holdfast.storage.known_secrets import hide, hide_in
from holdfast.types import check_name

__all__ = ["AttemptRow", "JobRow", "Registry", "RunState"]

_ID_BYTES = 4
_MIN_PREFIX = 2


@dataclass(frozen=True, kw_only=True)
class JobRow:
    id: str
    name: str
    state: RunState
    spec: Mapping[str, Any]
    created: datetime
    updated: datetime
    lease: Mapping[str, Any] | None = None
    """Who runs it: see :mod:`holdfast.control.lease`."""


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One run of a job; `number` counts from 1 within the job."""

    id: int
    job_id: str
    number: int
    state: RunState
    pid: int
    host: str
    started: datetime
    ended: datetime | None
    info: Mapping[str, Any]
    error: HoldfastError | None
    failure_class: FailureClass | None = None


class Registry:
    """Reads and writes the registry; safe to use from several threads."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._database = Database(url, busy_seconds=busy_seconds)
        self._clock = clock or SystemClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        return self._database.shown_url

    @property
    def database(self) -> Database:
        """For those who keep something else beside the jobs."""
        return self._database

    def close(self) -> None:
        self._database.close()

    def ensure_schema(self) -> None:
        """Create or migrate the tables; costs one query when there is nothing to do."""
        self._database.ensure_schema()

    def schema_version(self) -> str | None:
        """What is there now; unlike `ensure_schema` this changes nothing."""
        return self._database.schema_version()

    # -- jobs -----------------------------------------------------------------------

    def register_job(
        self, name: str, spec: Mapping[str, Any], *, keep_spec: bool = False
    ) -> JobRow:
        """The job of this name with this spec: a new one, or the known one updated, unless what
        is known of it is to be kept."""
        check_name(name, "job name")
        now = self._clock.now()
        with self._database.write() as connection:
            connection.execute(
                self._insert_or(
                    tables.jobs,
                    keys=["name"],
                    values={
                        "id": secrets.token_hex(_ID_BYTES),
                        "name": name,
                        "state": RunState.CREATED.value,
                        "spec": dict(spec),
                        "created": now,
                        "updated": now,
                    },
                    replace=["updated"] if keep_spec else ["spec", "updated"],
                )
            )
            query = select(tables.jobs).where(tables.jobs.c.name == name)
            return _job(connection.execute(query).one())

    def job(self, name_or_id: str) -> JobRow:
        """By name, by id, or by the beginning of an id. A name wins over an id."""
        jobs = self.jobs()
        for candidates in (
            [job for job in jobs if job.name == name_or_id],
            [job for job in jobs if job.id == name_or_id],
            [job for job in jobs if _is_prefix(name_or_id, job.id)],
        ):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                listed = ", ".join(f"{job.id} ({job.name})" for job in candidates)
                raise UsageError(
                    "JOB_AMBIGUOUS",
                    f"{name_or_id!r} is the beginning of several job ids: {listed}.",
                    fix="give more characters of the id, or the job's name.",
                )
        raise _job_not_found(name_or_id, jobs)

    def jobs(self) -> list[JobRow]:
        query = select(tables.jobs).order_by(tables.jobs.c.name)
        with self._database.read() as connection:
            return [_job(row) for row in connection.execute(query)]

    def jobs_page(
        self,
        *,
        name_contains: str = "",
        states: Iterable[RunState] = (),
        after: str | None = None,
        limit: int = 50,
    ) -> list[JobRow]:
        """By name; `after` is the last name of the page before."""
        table = tables.jobs
        query = select(table).order_by(table.c.name).limit(limit)
        if name_contains:
            query = query.where(table.c.name.contains(name_contains, autoescape=True))
        if wanted := [state.value for state in states]:
            query = query.where(table.c.state.in_(wanted))
        if after is not None:
            query = query.where(table.c.name > after)
        with self._database.read() as connection:
            return [_job(row) for row in connection.execute(query)]

    def set_state(self, job_id: str, state: RunState) -> None:
        """Of the job and, while it runs, of its open attempt."""
        with self._database.write() as connection:
            self._set_job_state(connection, job_id, state)
            connection.execute(
                update(tables.attempts)
                .where(tables.attempts.c.job_id == job_id, tables.attempts.c.ended.is_(None))
                .values(state=state.value)
            )

    def _set_job_state(self, connection: Connection, job_id: str, state: RunState) -> None:
        changed = connection.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == job_id)
            .values(state=state.value, updated=self._clock.now())
        )
        if changed.rowcount == 0:
            raise _job_not_found(job_id, [])

    # -- attempts -------------------------------------------------------------------

    def start_attempt(
        self,
        job_id: str,
        pid: int,
        host: str,
        started: datetime,
        info: Mapping[str, Any],
        *,
        last_committed: int | None = None,
    ) -> AttemptRow:
        """Number and store a new attempt.

        An attempt that is still open was killed before it could say so, because the
        caller holds the job's lock: it is closed here, and so are its open epochs. Those up
        to `last_committed` were committed; the news of it died with the process.
        """
        table = tables.attempts
        with self._database.write() as connection:
            # The row lock makes two starts count one after the other on PostgreSQL;
            # SQLite has a single writer anyway.
            job = select(tables.jobs.c.id).where(tables.jobs.c.id == job_id).with_for_update()
            if connection.execute(job).first() is None:
                raise _job_not_found(job_id, [])
            self._close_lost_attempts(connection, job_id, started, last_committed)
            number = select(func.coalesce(func.max(table.c.number), 0) + 1).where(
                table.c.job_id == job_id
            )
            created = connection.execute(
                insert(table)
                .values(
                    job_id=job_id,
                    number=number.scalar_subquery(),
                    state=RunState.STARTING.value,
                    pid=pid,
                    host=host,
                    started=started,
                    info=dict(info),
                )
                .returning(table)
            ).one()
            self._set_job_state(connection, job_id, RunState.STARTING)
            return _attempt(created)

    def end_attempt(
        self,
        attempt_id: int,
        state: RunState,
        ended: datetime,
        error: HoldfastError | None = None,
        *,
        last_committed: int | None = None,
    ) -> None:
        """Close an attempt; its state is also the job's unless a newer attempt runs.

        An epoch that it has left open is interrupted, unless it is known to be committed.
        """
        table = tables.attempts
        with self._database.write() as connection:
            closed = connection.execute(
                update(table)
                .where(table.c.id == attempt_id)
                .values(
                    state=state.value,
                    ended=ended,
                    error=_error_json(error),
                    failure_class=classify(error) if error else None,
                )
                .returning(table.c.job_id, table.c.number)
            ).first()
            if closed is None:
                raise NotFoundError(
                    "ATTEMPT_NOT_FOUND", f"the registry has no attempt with id {attempt_id}."
                )
            # An attempt that was replaced may end long after: the epochs of newer ones go on.
            self._close_epochs(connection, closed.job_id, last_committed, up_to=closed.number)
            newest = select(func.max(table.c.number)).where(table.c.job_id == closed.job_id)
            if connection.execute(newest).scalar() == closed.number:
                self._set_job_state(connection, closed.job_id, state)

    def attempts(self, job_id: str) -> list[AttemptRow]:
        """Oldest first."""
        table = tables.attempts
        query = select(table).where(table.c.job_id == job_id).order_by(table.c.number)
        with self._database.read() as connection:
            return [_attempt(row) for row in connection.execute(query)]

    def last_attempts(self) -> dict[str, AttemptRow]:
        """The newest attempt of every job, by job id."""
        table = tables.attempts
        newest = (
            select(table.c.job_id, func.max(table.c.number).label("number"))
            .group_by(table.c.job_id)
            .subquery()
        )
        query = select(table).join(
            newest,
            (table.c.job_id == newest.c.job_id) & (table.c.number == newest.c.number),
        )
        with self._database.read() as connection:
            rows = [_attempt(row) for row in connection.execute(query)]
        return {row.job_id: row for row in rows}

    def _close_lost_attempts(
        self,
        connection: Connection,
        job_id: str,
        ended: datetime,
        last_committed: int | None,
    ) -> None:
        lost = RunFailedError(
            "ATTEMPT_LOST", "the process ended without a word, as after kill -9 or a crash."
        )
        closed = connection.execute(
            update(tables.attempts)
            .where(tables.attempts.c.job_id == job_id, tables.attempts.c.ended.is_(None))
            .values(
                state=RunState.FAILED.value,
                ended=ended,
                error=_error_json(lost),
                failure_class=FailureClass.LOST_DRIVER,
            )
        )
        if closed.rowcount:
            self._close_epochs(connection, job_id, last_committed)

    @staticmethod
    def _close_epochs(
        connection: Connection,
        job_id: str,
        last_committed: int | None,
        *,
        up_to: int | None = None,
    ) -> None:
        """Those that are open, of attempts `up_to` that number; None: of all."""
        table = tables.epochs
        open_epochs = select(table.c.record).where(
            table.c.job_id == job_id, table.c.status == EpochStatus.RUNNING.value
        )
        if up_to is not None:
            open_epochs = open_epochs.where(table.c.attempt <= up_to)
        for record in connection.execute(open_epochs).scalars().all():
            committed = last_committed is not None and record["epoch"] <= last_committed
            status = EpochStatus.COMMITTED if committed else EpochStatus.INTERRUPTED
            connection.execute(
                update(table)
                .where(
                    table.c.job_id == job_id,
                    table.c.epoch == record["epoch"],
                    table.c.attempt == record["attempt"],
                )
                .values(status=status.value, record=record | {"status": status.value})
            )

    # -- events and requests --------------------------------------------------------

    def add_event(self, job_id: str, event: JobEvent) -> None:
        values = {"job_id": job_id, **vars(event)}
        values |= {"text": hide(event.text), "data": hide_in(dict(event.data))}
        with self._database.write() as connection:
            connection.execute(insert(tables.events).values(values))

    def events(self, job_id: str, last: int | None = None) -> list[JobEvent]:
        """Oldest first; `last` keeps the newest only."""
        table = tables.events
        query = (
            select(table)
            .where(table.c.job_id == job_id)
            .order_by(table.c.id.desc())
            .limit(last)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            JobEvent(
                at=row.at, kind=row.kind, text=row.text, data=row.data, attempt=row.attempt
            )
            for row in reversed(rows)
        ]

    def ask(self, job_id: str, kind: str, asked_by: str) -> int:
        """Leave a request for the job's supervisor; returns its number."""
        values = {
            "job_id": job_id,
            "kind": kind,
            "asked": self._clock.now(),
            "asked_by": asked_by,
        }
        with self._database.write() as connection:
            created = connection.execute(
                insert(tables.requests).values(values).returning(tables.requests.c.id)
            )
            return int(created.scalar_one())

    def take_requests(self, job_id: str) -> list[str]:
        """What has been asked for since the last call, oldest first; each only once."""
        table = tables.requests
        waiting = (table.c.job_id == job_id) & table.c.taken.is_(None)
        query = select(table.c.id, table.c.kind).where(waiting).order_by(table.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return []
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.id.in_([row.id for row in rows]))
                .values(taken=self._clock.now())
            )
        return [row.kind for row in rows]

    def set_lease(self, job_id: str, lease: Mapping[str, Any] | None) -> None:
        with self._database.write() as connection:
            connection.execute(
                update(tables.jobs)
                .where(tables.jobs.c.id == job_id)
                .values(lease=None if lease is None else dict(lease))
            )

    # -- epochs ---------------------------------------------------------------------

    def save_epochs(self, job_id: str, records: Iterable[EpochRecord]) -> None:
        """Insert or replace, by (job, epoch, attempt); a later record in the list wins."""
        newest = {(record.epoch, record.attempt): record for record in records}
        rows = [
            {
                "job_id": job_id,
                "epoch": record.epoch,
                "attempt": record.attempt,
                "status": record.status.value,
                "record": record.to_dict(),
            }
            for record in newest.values()
        ]
        if not rows:
            return
        statement = self._insert_or(
            tables.epochs, keys=["job_id", "epoch", "attempt"], replace=["status", "record"]
        )
        with self._database.write() as connection:
            connection.execute(statement, rows)

    def epochs(
        self,
        job_id: str,
        last: int | None = None,
        *,
        after: tuple[int, int] | None = None,
        before: tuple[int, int] | None = None,
        epoch: int | None = None,
    ) -> list[EpochRecord]:
        """In the order in which they ran; `last` keeps the newest records only, `after` those
        past an (attempt, epoch), `before` those ahead of one, `epoch` those of one number."""
        table = tables.epochs
        query = (
            select(table.c.record)
            .where(table.c.job_id == job_id)
            .order_by(table.c.attempt.desc(), table.c.epoch.desc())
            .limit(last)
        )
        if after is not None:
            query = query.where(tuple_(table.c.attempt, table.c.epoch) > after)
        if before is not None:
            query = query.where(tuple_(table.c.attempt, table.c.epoch) < before)
        if epoch is not None:
            query = query.where(table.c.epoch == epoch)
        return self._read_epochs(query)[::-1]

    def sink_totals(self, job_id: str) -> dict[str, SinkResult]:
        """What each sink has got in all epochs; an epoch that it skipped it had before."""
        totals: dict[str, SinkResult] = {}
        for record in self.epochs(job_id):
            for uid, got in record.sinks.items():
                known = totals.get(uid, SinkResult(rows=0, bytes=0))
                totals[uid] = SinkResult(
                    rows=known.rows + got.rows,
                    bytes=known.bytes + got.bytes,
                    files=known.files + got.files,
                )
        return totals

    def last_epoch(self, job_id: str) -> EpochRecord | None:
        """The newest committed epoch."""
        table = tables.epochs
        query = (
            select(table.c.record)
            .where(table.c.job_id == job_id, table.c.status == EpochStatus.COMMITTED.value)
            .order_by(table.c.attempt.desc(), table.c.epoch.desc())
            .limit(1)
        )
        newest = self._read_epochs(query)
        return newest[0] if newest else None

    def newest_epochs(self) -> dict[str, tuple[int, int, str]]:
        """(attempt, epoch, status) of the newest epoch of every job, by its id."""
        table = tables.epochs
        newest = (
            select(table.c.attempt, table.c.epoch, table.c.status)
            .where(table.c.job_id == tables.jobs.c.id)
            .order_by(table.c.attempt.desc(), table.c.epoch.desc())
            .limit(1)
        )
        # A look into the index per job, not one at every epoch.
        columns = [
            newest.with_only_columns(column).scalar_subquery().label(column.name)
            for column in (table.c.attempt, table.c.epoch, table.c.status)
        ]
        with self._database.read() as connection:
            rows = connection.execute(select(tables.jobs.c.id, *columns)).all()
        return {
            row.id: (row.attempt, row.epoch, row.status)
            for row in rows
            if row.attempt is not None
        }

    def _read_epochs(self, query: Select[Any]) -> list[EpochRecord]:
        with self._database.read() as connection:
            records = connection.execute(query).scalars().all()
        return [EpochRecord.from_dict(record) for record in records]

    def _insert_or(
        self,
        table: Any,
        *,
        keys: list[str],
        replace: list[str],
        values: Mapping[str, Any] | None = None,
    ) -> Any:
        """INSERT … ON CONFLICT DO UPDATE, which the two databases share but not in name."""
        if self._database.dialect == "postgresql":
            from sqlalchemy.dialects import postgresql as dialect
        else:
            from sqlalchemy.dialects import sqlite as dialect  # type: ignore[no-redef]

        statement = dialect.insert(table)
        if values is not None:
            statement = statement.values(values)
        return statement.on_conflict_do_update(
            index_elements=keys,
            set_={column: statement.excluded[column] for column in replace},
        )


def _job(row: Row[Any]) -> JobRow:
    return JobRow(**(dict(row._mapping) | {"state": RunState(row.state)}))


def _attempt(row: Row[Any]) -> AttemptRow:
    error = None if row.error is None else HoldfastError.from_json(json.dumps(row.error))
    failure_class = row.failure_class and FailureClass(row.failure_class)
    fields = dict(row._mapping) | {
        "state": RunState(row.state),
        "error": error,
        "failure_class": failure_class,
    }
    return AttemptRow(**fields)


def _error_json(error: HoldfastError | None) -> Any:
    return None if error is None else hide_in(json.loads(error.to_json()))


def _is_prefix(text: str, job_id: str) -> bool:
    # One character would match by luck rather than by intent.
    return len(text) >= _MIN_PREFIX and job_id.startswith(text)


def _job_not_found(name: str, jobs: list[JobRow]) -> NotFoundError:
    names = [job.name for job in jobs]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        fix = f"did you mean {' or '.join(repr(match) for match in close)}?"
    elif names:
        fix = f"`holdfast ps` lists the jobs; there are {len(names)}."
    else:
        fix = "start one with `holdfast run APP.py`, or set HOLDFAST_HOME to where it ran."
    return NotFoundError(
        "JOB_NOT_FOUND", f"there is no job {name!r}.", fix=fix, job=name, close_matches=close
    )
