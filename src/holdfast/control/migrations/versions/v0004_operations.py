"""Long work on jobs, which outlives whoever asked for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "operations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("asked_by", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255)),
        sa.Column("holds", sa.String(64)),
        sa.Column("created", moment, nullable=False),
        sa.Column("started", moment),
        sa.Column("ended", moment),
        sa.Column("updated", moment, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("worker", sa.JSON),
        sa.Column("progress", sa.JSON),
        sa.Column("lines", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
        sa.UniqueConstraint("holds", name="uq_operations_holds"),
        sa.UniqueConstraint("asked_by", "key", name="uq_operations_asked_by"),
    )
    op.create_index("ix_operations_job", "operations", ["job", "created"])
    op.create_index("ix_operations_created", "operations", ["created"])
    op.create_index("ix_operations_state", "operations", ["state"])


def downgrade() -> None:
    op.drop_table("operations")
