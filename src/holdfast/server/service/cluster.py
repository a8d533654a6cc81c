"""The local cluster: its Master, its workers, and their end."""

from __future__ import annotations

from holdfast.client import models
from holdfast.control.cluster.local import LocalCluster
from holdfast.server.access.roles import Actor, Role
from holdfast.server.service.backend import Backend


class ClusterService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def _cluster(self) -> LocalCluster:
        return LocalCluster(self._backend.settings.home)

    def get(self) -> models.Cluster:
        cluster = self._cluster()
        record = cluster.record()
        members = [
            models.ClusterMember(
                name=each.name,
                state=each.state,
                pid=each.pid,
                cores=each.cores,
                cores_used=each.cores_used,
                executors=list(each.executors),
                memory=each.memory,
                since=each.since,
            )
            for each in cluster.members()
        ]
        return models.Cluster(url=record.url if record else None, members=members)

    def kill(self, actor: Actor, worker: str) -> models.KilledWorker:
        """With its executors, by SIGKILL: to see a job survive it."""
        with self._backend.audit.change(actor, "kill worker", worker=worker):
            actor.require(Role.OPERATOR)
            pids = [process.pid for process in self._cluster().kill(worker)]
        return models.KilledWorker(worker=worker, pids=pids)
