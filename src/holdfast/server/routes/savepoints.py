"""Savepoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from holdfast.client import models
from holdfast.server.routes.common import (
    ActorHere,
    Cursor,
    JobName,
    Limit,
    Routes,
    SavepointId,
    ServiceHere,
    accepted,
)
from holdfast.server.routes.operations import ACCEPTED

routes = Routes("savepoints", "Savepoints of all jobs, also of jobs that are gone.")
JobFilter = Annotated[
    str | None, Query(max_length=64, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$")
]


@routes.get("/savepoints")
def list_savepoints(
    service: ServiceHere, job: JobFilter = None, cursor: Cursor = None, limit: Limit = 50
) -> models.SavepointPage:
    """The newest first."""
    return service.savepoints.page(job=job, cursor=cursor, limit=limit)


@routes.get("/jobs/{job}/savepoints")
def list_savepoints_of_job(
    job: JobName, service: ServiceHere, cursor: Cursor = None, limit: Limit = 50
) -> models.SavepointPage:
    """Those of one job, the newest first."""
    return service.savepoints.page(job=job, cursor=cursor, limit=limit)


@routes.get("/savepoints/{savepoint}")
def get_savepoint(savepoint: SavepointId, service: ServiceHere) -> models.SavepointDetails:
    """What it holds."""
    return service.savepoints.get(savepoint)


@routes.post("/savepoints/{savepoint}/verify", **ACCEPTED)
def verify_savepoint(
    savepoint: SavepointId, service: ServiceHere, actor: ActorHere, response: Response
) -> models.Operation:
    """Compare every byte with the manifest."""
    return accepted(service.savepoints.verify(actor, savepoint), response)


@routes.post("/savepoints/{savepoint}/export", **ACCEPTED)
def export_savepoint(
    savepoint: SavepointId, service: ServiceHere, actor: ActorHere, response: Response
) -> models.Operation:
    """Make a canonical savepoint of it: the same state as plain columns."""
    return accepted(service.savepoints.export(actor, savepoint), response)


@routes.delete("/savepoints/{savepoint}", status_code=204)
def delete_savepoint(savepoint: SavepointId, service: ServiceHere, actor: ActorHere) -> None:
    """Remove it for good."""
    service.savepoints.delete(actor, savepoint)


@routes.get("/lineage")
def get_lineage(service: ServiceHere, job: JobFilter = None) -> list[models.Tree]:
    """Which savepoints were taken in which timeline, and what was started from them."""
    return service.savepoints.trees(job=job)
