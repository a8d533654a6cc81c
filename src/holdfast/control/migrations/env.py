"""Run by Alembic. The registry hands over a connection that already holds the write lock."""

from __future__ import annotations

from alembic import context

from holdfast.control.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter a table in place
)
context.run_migrations()
