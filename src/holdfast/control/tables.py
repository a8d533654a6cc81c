"""The registry's tables.

SQLAlchemy Core, not its ORM: the rows are plain records, and importing the ORM would
add half a second to every `holdfast` command.

A change here needs a migration in `migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)

SCHEMA_HEAD = "0004"
"""The newest migration. Kept here so that a start-up need not import Alembic to know it."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC on every database; SQLite itself would drop the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; use datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


metadata = MetaData(
    # Names that do not depend on the database, so that later migrations can refer to them.
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("state", String(16), nullable=False),
    Column("spec", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("updated", UtcDateTime, nullable=False),
    Column("lease", JSON(none_as_null=True)),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("host", String(255), nullable=False),
    Column("started", UtcDateTime, nullable=False),
    Column("ended", UtcDateTime),
    Column("info", JSON, nullable=False),
    Column("error", JSON(none_as_null=True)),
    Column("failure_class", String(16)),
    UniqueConstraint("job_id", "number"),
)

epochs = Table(
    "epochs",
    metadata,
    Column(
        "job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, nullable=False
    ),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("status", String(16), nullable=False),
    # The whole record as JSON: a new figure in it needs no migration.
    Column("record", JSON, nullable=False),
    # The order in which they ran: a job that is taken back counts its epochs anew.
    Index("ix_epochs_in_time", "job_id", "attempt", "epoch"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("attempt", Integer),
    Column("at", UtcDateTime, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("text", String, nullable=False),
    Column("data", JSON, nullable=False),
)
"""What happened to a job besides its epochs: restarts, lost workers, commands."""

requests = Table(
    "requests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("asked", UtcDateTime, nullable=False),
    Column("asked_by", String(255), nullable=False),
    Column("taken", UtcDateTime),
)
"""What people want of a running job; its supervisor looks here."""

operations = Table(
    "operations",
    metadata,
    Column("id", String(32), primary_key=True),
    # A name and not a reference: the job of a start need not be known yet.
    Column("job", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("asked_by", String(255), nullable=False),
    Column("key", String(255)),
    Column("holds", String(64), unique=True),
    Column("created", UtcDateTime, nullable=False),
    Column("started", UtcDateTime),
    Column("ended", UtcDateTime),
    Column("updated", UtcDateTime, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("worker", JSON(none_as_null=True)),
    Column("progress", JSON(none_as_null=True)),
    Column("lines", JSON, nullable=False),
    Column("result", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    UniqueConstraint("asked_by", "key"),
    Index("ix_operations_job", "job", "created"),
    Index("ix_operations_created", "created"),
    Index("ix_operations_state", "state"),
)
"""Long work on jobs. `holds` is the job's name while it may not have another one, so that the
database itself refuses a second; `key` is the asker's own name for it, so that asking twice is
asking once."""
