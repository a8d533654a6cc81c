"""The server itself: settings, the cluster, room for jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from holdfast.client import models
from holdfast.server.routes.common import ActorHere, Routes, ServiceHere

routes = Routes("server", "The server, its settings, and the local cluster.")


@routes.get("/server")
def get_server(service: ServiceHere) -> models.ServerInfo:
    """Versions and places."""
    return service.machine.info()


@routes.get("/config")
def get_config(service: ServiceHere) -> list[models.ConfigEntry]:
    """Every setting with where it came from; secrets are hidden."""
    return service.machine.config()


@routes.get("/session")
def get_session(service: ServiceHere) -> models.Session:
    """How much of the machine jobs may take together, and who has taken what."""
    return service.machine.session()


@routes.get("/apps")
def list_apps(service: ServiceHere) -> list[models.AppFile]:
    """Files that may be started."""
    return service.machine.apps()


@routes.get("/cluster")
def get_cluster(service: ServiceHere) -> models.Cluster:
    """The local cluster: its Master and its workers."""
    return service.cluster.get()


@routes.post("/cluster/workers/{worker}/kill")
def kill_worker(
    worker: Annotated[str, Path(pattern=r"^worker-[1-9]\d{0,3}$")],
    service: ServiceHere,
    actor: ActorHere,
) -> models.KilledWorker:
    """Kill a worker with its executors, to see a job survive it."""
    return service.cluster.kill(actor, worker)
