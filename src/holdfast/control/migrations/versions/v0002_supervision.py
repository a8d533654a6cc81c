"""Leases, classes of failures, events, and requests to supervisors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("lease", sa.JSON))
    with op.batch_alter_table("attempts") as attempts:
        attempts.add_column(sa.Column("failure_class", sa.String(16)))
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer),
        sa.Column("at", moment, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_events_job_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_events_job_id", "events", ["job_id"])
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("asked", moment, nullable=False),
        sa.Column("asked_by", sa.String(255), nullable=False),
        sa.Column("taken", moment),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_requests_job_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_requests_job_id", "requests", ["job_id"])


def downgrade() -> None:
    op.drop_table("requests")
    op.drop_table("events")
    with op.batch_alter_table("attempts") as attempts:
        attempts.drop_column("failure_class")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("lease")
