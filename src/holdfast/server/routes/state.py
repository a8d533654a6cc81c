"""The state of jobs and savepoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from holdfast.client import models, requests
from holdfast.server.access.roles import Role
from holdfast.server.routes.common import Limit, Routes, ServiceHere, StateOf

routes = Routes(
    "state",
    "State as tables. The first look at an epoch or a savepoint takes Spark, and so seconds; "
    "later ones do not. Of a job, the newest epoch that was looked at is read, unless `fresh`.",
)
Fresh = Annotated[bool, Query(description="Of a job: its newest epoch, whatever it takes.")]
Table = Annotated[str, Query(max_length=200, description="The uid of a step.")]


@routes.get("/state/{of}/tables")
def list_tables(of: StateOf, service: ServiceHere, fresh: Fresh = False) -> models.StateTables:
    """A table per stateful step: its columns, and how many keys it has."""
    return service.state.tables(of, fresh=fresh)


@routes.get("/state/{of}/keys")
def get_key(
    of: StateOf,
    service: ServiceHere,
    table: Table,
    key: Annotated[list[str], Query(description="Once per key column.")],
    fresh: Fresh = False,
) -> models.StateRows:
    """The state of one key."""
    return service.state.get(of, table, key, fresh=fresh)


@routes.get("/state/{of}/rows")
def browse(
    *,
    of: StateOf,
    service: ServiceHere,
    table: Table,
    offset: Annotated[int, Query(ge=0, le=10**12)] = 0,
    limit: Limit = 50,
    fresh: Fresh = False,
) -> models.StateRows:
    """Rows of a table, by key."""
    return service.state.browse(of, table, offset=offset, limit=limit, fresh=fresh)


@routes.post("/state/{of}/query", role=Role.VIEWER)
def query(of: StateOf, body: requests.QueryRequest, service: ServiceHere) -> models.StateRows:
    """One SELECT (DuckDB). It reads the state and cannot reach anything else."""
    return service.state.query(of, body.sql, limit=body.limit, fresh=body.fresh)


@routes.post("/state/diff", role=Role.VIEWER)
def diff(body: requests.DiffRequest, service: ServiceHere) -> models.StateDiff:
    """Which keys are new, gone, or have other values."""
    return service.state.diff(body.before, body.after, table=body.table, limit=body.limit)
