"""Epochs in the order in which they ran: a job that is taken back counts them anew."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_epochs_in_time", "epochs", ["job_id", "attempt", "epoch"])


def downgrade() -> None:
    op.drop_index("ix_epochs_in_time", "epochs")
