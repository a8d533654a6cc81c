"""Savepoints, and how they came from one another."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.client import models, requests
from holdfast.errors import ConflictError
from holdfast.savepoint.lineage import job_trees
from holdfast.savepoint.store import Savepoint
from holdfast.server.access.roles import Actor, Role
from holdfast.server.service import convert
from holdfast.server.service.backend import Backend
from holdfast.server.service.cursors import bad_cursor
from holdfast.server.service.jobs import identity_of
from holdfast.server.service.operations import OperationService
from holdfast.types import check_name


class SavepointService:
    def __init__(self, backend: Backend, operations: OperationService) -> None:
        self._backend, self._operations = backend, operations

    def page(
        self, *, job: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> models.SavepointPage:
        """The newest first."""
        if job is not None:
            check_name(job, "job name")
        found, unreadable = self._backend.savepoints.scan(job)
        found.reverse()
        if cursor is not None:
            places = [at for at, each in enumerate(found) if each.manifest.id == cursor]
            if not places:
                raise bad_cursor()
            found = found[places[0] + 1 :]
        shown = found[:limit]
        errors = [convert.trouble(error) for error in unreadable] if cursor is None else []
        return models.SavepointPage(
            items=[convert.savepoint(each) for each in shown],
            next=shown[-1].manifest.id if len(found) > limit else None,
            unreadable=[error for error in errors if error is not None],
        )

    def get(self, savepoint_id: str) -> models.SavepointDetails:
        found = self._backend.savepoints.by_id(savepoint_id)
        manifest, identity = found.manifest, found.manifest.identity
        return models.SavepointDetails(
            **convert.savepoint_fields(found),
            sources=dict(manifest.sources),
            watermark=manifest.watermark,
            key_groups=identity.key_groups,
            holdfast=manifest.holdfast,
            spark=manifest.spark,
            edits=list(manifest.edits),
            operators=[
                models.SavepointStep(
                    uid=uid,
                    kind=step["kind"],
                    keys=manifest.keys.get(uid),
                    variables=dict(step["variables"]),
                    detail=step.get("detail") or "",
                )
                for uid, step in identity.operators.items()
            ],
            used_by=self._used_by(found),
        )

    def _used_by(self, savepoint: Savepoint) -> list[str]:
        wanted = savepoint.manifest.id
        return [
            f"{row.name}/{timeline.name}"
            for row in self._backend.registry.jobs()
            if (identity := identity_of(row)) is not None
            for timeline in identity.timelines
            if timeline.origin == wanted
        ]

    def trees(self, *, job: str | None = None) -> list[models.Tree]:
        found, _ = self._backend.savepoints.scan()
        jobs = [identity_of(row) for row in self._backend.registry.jobs()]
        trees = job_trees(
            [each.manifest for each in found], [each for each in jobs if each is not None]
        )
        return [
            models.Tree.model_validate(asdict(each))
            for each in trees
            if job in (None, each.job)
        ]

    def delete(self, actor: Actor, savepoint_id: str) -> None:
        """For good; not while a job that may still need it is on its way from it."""
        with self._backend.audit.change(actor, "delete", savepoint=savepoint_id) as line:
            actor.require(Role.OPERATOR)
            found = self._backend.savepoints.by_id(savepoint_id)
            line["job"] = found.manifest.identity.name
            self._refuse_if_wanted(savepoint_id)
            self._backend.savepoints.delete(found)

    def _refuse_if_wanted(self, savepoint_id: str) -> None:
        for operation in self._backend.operations.open():
            if savepoint_id in operation.parameters.values():
                raise ConflictError(
                    "SAVEPOINT_IN_USE",
                    f"operation {operation.id} ({operation.kind} of job {operation.job!r}) "
                    f"goes on from savepoint {savepoint_id}.",
                    fix="wait for its end.",
                    operation=operation.id,
                )

    def verify(self, actor: Actor, savepoint_id: str) -> models.Operation:
        return self._operations.of_savepoint(actor, savepoint_id, requests.VerifyRequest())

    def export(self, actor: Actor, savepoint_id: str) -> models.Operation:
        return self._operations.of_savepoint(actor, savepoint_id, requests.ExportRequest())
