"""Alembic migrations of the registry; shipped with the package, run by `Registry`."""
