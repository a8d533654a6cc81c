"""What the metrics ask the registry. The database adds up; rows do not travel.

Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, and_, func, literal_column, select, tuple_

from holdfast.checkpoint.record import EpochStatus
from holdfast.control.registry import Registry
from holdfast.control.tables import attempts, epochs, events

SETTLED_AFTER = 200
"""Epochs this far behind the last committed one do not change any more: a killed attempt
leaves the record of its last epoch to be corrected by the next one, and no older ones."""
Place = tuple[int, int]
"""Attempt and epoch: they order the epochs of a job in time."""


@dataclass(frozen=True, kw_only=True)
class EpochTotals:
    """Sums over epochs. Only committed ones count, and each of them once."""

    committed: int = 0
    interrupted: int = 0
    input_rows: int = 0
    skipped_rows: int = 0
    sink_rows: Mapping[str, int] = field(default_factory=dict)
    late_rows: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: EpochTotals) -> EpochTotals:
        return EpochTotals(
            committed=self.committed + other.committed,
            interrupted=self.interrupted + other.interrupted,
            input_rows=self.input_rows + other.input_rows,
            skipped_rows=self.skipped_rows + other.skipped_rows,
            sink_rows=_added(self.sink_rows, other.sink_rows),
            late_rows=_added(self.late_rows, other.late_rows),
        )


def _added(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in sorted({*a, *b})}


class Totals:
    """The totals of every job, for somebody who asks again and again.

    Epochs that are settled are added up once and remembered; later calls look at the rest
    only. So a job with 100,000 epochs costs no more than one with 200.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._settled: dict[str, tuple[Place, EpochTotals]] = {}

    def of(self, job_id: str) -> EpochTotals:
        upto, settled = self._settled.get(job_id, ((0, -1), EpochTotals()))
        with self._registry._database.read() as connection:
            newest = connection.execute(_newest_committed(job_id)).one_or_none()
            border = upto
            if newest is not None:
                border = max(upto, (newest.attempt, newest.epoch - SETTLED_AFTER))
            if border > upto:
                settled = settled.plus(self._sum(connection, job_id, upto, border))
                self._settled[job_id] = border, settled
            return settled.plus(self._sum(connection, job_id, border, None))

    def _sum(
        self, connection: Connection, job_id: str, after: Place, upto: Place | None
    ) -> EpochTotals:
        """Of the epochs past `after`, up to and with `upto`."""
        place = tuple_(epochs.c.attempt, epochs.c.epoch)
        within = and_(epochs.c.job_id == job_id, place > after)
        if upto is not None:
            within = and_(within, place <= upto)
        by_status = (
            select(epochs.c.status, func.count().label("epochs"))
            .where(within)
            .group_by(epochs.c.status)
        )
        counts = {row.status: row.epochs for row in connection.execute(by_status)}
        committed = and_(within, epochs.c.status == EpochStatus.COMMITTED.value)
        rows = connection.execute(
            select(_sum_of("input_rows"), _sum_of("skipped_rows")).where(committed)
        ).one()
        dialect = self._registry._database.dialect
        return EpochTotals(
            committed=counts.get(EpochStatus.COMMITTED.value, 0),
            interrupted=counts.get(EpochStatus.INTERRUPTED.value, 0),
            input_rows=int(rows[0] or 0),
            skipped_rows=int(rows[1] or 0),
            sink_rows=_by_uid(connection, sums_by_uid(dialect, "sinks", "rows", committed)),
            late_rows=_by_uid(connection, sums_by_uid(dialect, "late", None, committed)),
        )


def _newest_committed(job_id: str) -> Select[Any]:
    # Ordered as the index is, so that the database looks at one row and not at all.
    return (
        select(epochs.c.attempt, epochs.c.epoch)
        .where(epochs.c.job_id == job_id, epochs.c.status == EpochStatus.COMMITTED.value)
        .order_by(epochs.c.attempt.desc(), epochs.c.epoch.desc())
        .limit(1)
    )


def _sum_of(name: str) -> Any:
    return func.sum(epochs.c.record[name].as_integer())


def sums_by_uid(dialect: str, part: str, member: str | None, where: Any) -> Select[Any]:
    """Sums over a part of the records that is a map by uid: of its values, or of a member."""
    if dialect == "postgresql":
        pairs = func.json_each(epochs.c.record[part]).table_valued("key", "value", name="pairs")
        text = "pairs.value #>> '{}'" if member is None else f"pairs.value ->> '{member}'"
    else:
        pairs = func.json_each(epochs.c.record, f"$.{part}").table_valued(
            "key", "value", name="pairs"
        )
        # SQLite gives an object as JSON text, and a plain value as it is.
        text = "pairs.value" if member is None else f"json_extract(pairs.value, '$.{member}')"
    amount: Any = literal_column(f"CAST({text} AS BIGINT)")
    return (
        select(pairs.c.key, func.sum(amount))
        .select_from(epochs.join(pairs, literal_column("1") == literal_column("1")))
        .where(where)
        .group_by(pairs.c.key)
    )


def _by_uid(connection: Connection, query: Select[Any]) -> dict[str, int]:
    return {str(uid): int(total or 0) for uid, total in connection.execute(query)}


def last_record(registry: Registry, job_id: str) -> Mapping[str, Any] | None:
    """The newest committed epoch, as stored: with figures that this version may not know."""
    query = _newest_committed(job_id).with_only_columns(epochs.c.record)
    with registry._database.read() as connection:
        record: Mapping[str, Any] | None = connection.execute(query).scalar()
    return record


def attempt_counts(registry: Registry) -> dict[str, int]:
    """How many attempts there were, by job id."""
    count = func.count().label("attempts")
    query = select(attempts.c.job_id, count).group_by(attempts.c.job_id)
    with registry._database.read() as connection:
        return {row.job_id: row.attempts for row in connection.execute(query)}


def restart_counts(registry: Registry) -> dict[tuple[str, str], int]:
    """Failed attempts that another one followed, by job id and class of the failure."""
    last = (
        select(attempts.c.job_id, func.max(attempts.c.number).label("number"))
        .group_by(attempts.c.job_id)
        .subquery()
    )
    query = (
        select(attempts.c.job_id, attempts.c.failure_class, func.count())
        .join(last, attempts.c.job_id == last.c.job_id)
        .where(attempts.c.failure_class.is_not(None), attempts.c.number < last.c.number)
        .group_by(attempts.c.job_id, attempts.c.failure_class)
    )
    with registry._database.read() as connection:
        rows = connection.execute(query)
        return {(job_id, reason): count for job_id, reason, count in rows}


def event_counts(registry: Registry) -> dict[tuple[str, str], int]:
    """How often each kind of event happened, by job id; the kind that came first comes first,
    so that a limit on kinds keeps the same ones."""
    query = (
        select(events.c.job_id, events.c.kind, func.count())
        .group_by(events.c.job_id, events.c.kind)
        .order_by(func.min(events.c.id))
    )
    with registry._database.read() as connection:
        rows = connection.execute(query)
        return {(job_id, kind): count for job_id, kind, count in rows}
