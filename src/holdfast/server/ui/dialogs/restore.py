"""Going on from another point, or with another parallelism or code: always by a plan."""

from __future__ import annotations

from holdfast.client import models, requests
from holdfast.errors import UsageError
from holdfast.server.ui.dialogs.sheet import PlanSheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.widgets import Field, Option

SINKS = (
    Option("keep", "Keep", "What sinks hold beyond the point stays there."),
    Option("rewind", "Rewind", "File sinks drop what they hold beyond the point."),
    Option("new", "New", "Sinks go on in new directories; the old output stays as it is."),
)


class _RollBack(PlanSheet):
    def __init__(self, here: Here, job: models.JobDetails, points: list[Option], origin: str):
        super().__init__(here, f"Restore {job.name}", job.name, go="Restore")
        with self.fields:
            text(
                "p",
                "The job ends, and runs on from the point in a new timeline.",
                "muted",
            )
            self._origin = Field(
                "Restore from", origin, kind="select", options=points, change=self.changed
            )
            self._parallelism = Field(
                "Parallelism",
                str(job.parallelism or ""),
                kind="number",
                least=1,
                most=job.key_groups or 4096,
                change=self.changed,
                enter=self.plan,
                hint=f"At most {job.key_groups}: the job's key groups."
                if job.key_groups
                else "",
            )
            self._sink = Field(
                "What is in the sinks beyond that point",
                "rewind",
                kind="radio",
                options=SINKS,
                change=self.changed,
            )
            self._dropped = Field(
                "Drop state of steps that the code does not have any more",
                value=False,
                kind="check",
                change=self.changed,
            )
        self._now = job.parallelism

    def request(self) -> requests.RollbackRequest:
        wanted = self._parallelism.number
        return requests.RollbackRequest.model_validate(
            {
                "origin": str(self._origin.value),
                "sink": str(self._sink.value),
                "parallelism": None if wanted == self._now else wanted,
                "allow_dropped": bool(self._dropped.value),
            }
        )


class _Rescale(PlanSheet):
    def __init__(self, here: Here, job: models.JobDetails) -> None:
        super().__init__(here, f"Rescale {job.name}", job.name, go="Rescale")
        with self.fields:
            text(
                "p",
                "Stops with a savepoint, and goes on from it with other partitions.",
                "muted",
            )
            self._parallelism = Field(
                "Parallelism",
                kind="number",
                least=1,
                most=job.key_groups or 4096,
                focus=True,
                change=self.changed,
                enter=self.plan,
                hint=f"Now {job.parallelism}; at most {job.key_groups}, the job's key groups.",
            )

    def request(self) -> requests.RescaleRequest:
        wanted = self._parallelism.number
        if wanted is None:
            raise UsageError("INVALID_PARALLELISM", "the parallelism is a whole number.")
        return requests.RescaleRequest(parallelism=wanted)


class _Fork(PlanSheet):
    def __init__(
        self,
        here: Here,
        job: models.JobDetails,
        points: list[Option],
        origin: str,
        apps: list[models.AppFile],
    ) -> None:
        super().__init__(here, f"Fork {job.name}", job.name, go="Fork")
        with self.fields:
            text(
                "p",
                "A new job of its own, with the state of the point; its sinks write beside "
                f"those of {job.name}.",
                "muted",
            )
            self._name = Field(
                "Name of the new job",
                f"{job.name}-fork",
                focus=True,
                change=self.changed,
                enter=self.plan,
            )
            others = [each.path for each in apps if each.path != job.app]
            self._app = Field(
                "Code",
                "",
                kind="select",
                change=self.changed,
                options=[
                    Option("", f"that of {job.name}"),
                    *(Option(each, each) for each in others),
                ],
            )
            self._origin = Field(
                "From",
                origin,
                kind="select",
                change=self.changed,
                options=[Option("", "a savepoint that is taken now"), *points],
            )
            self._parallelism = Field(
                "Parallelism",
                kind="number",
                least=1,
                most=4096,
                placeholder="the same",
                change=self.changed,
                enter=self.plan,
            )

    def request(self) -> requests.ForkRequest:
        return requests.ForkRequest(
            name=self._name.text,
            app=str(self._app.value) or None,
            savepoint=str(self._origin.value) or None,
            parallelism=self._parallelism.number,
        )


class _Upgrade(PlanSheet):
    def __init__(self, here: Here, job: models.JobDetails, apps: list[models.AppFile]) -> None:
        super().__init__(here, f"Upgrade {job.name}", job.name, go="Upgrade")
        paths = [each.path for each in apps]
        with self.fields:
            text(
                "p",
                "Stops with a savepoint, goes on with the new code, and goes back if that does "
                "not commit epochs.",
                "muted",
            )
            self._app = Field(
                "New code",
                job.app or (paths[0] if paths else ""),
                kind="select",
                options=[Option(each, each) for each in paths],
                change=self.changed,
            )
            self._epochs = Field(
                "Healthy after this many epochs",
                "3",
                kind="number",
                least=1,
                most=1000,
                change=self.changed,
                enter=self.plan,
            )

    def request(self) -> requests.UpgradeRequest:
        return requests.UpgradeRequest(
            app=str(self._app.value), healthy_epochs=self._epochs.number or 3
        )


async def roll_back(here: Here, job: str, origin: str = "") -> None:
    details = await here.ask(here.service.jobs.get, job)
    points = await _points(here, job)
    if not points:
        raise UsageError(
            "SAVEPOINT_NOT_FOUND",
            f"job {job!r} has no savepoint to go back to.",
            fix="take one: the button is on its page.",
        )
    await _RollBack(here, details, points, origin or points[0].value).wait()


async def rescale(here: Here, job: str) -> None:
    await _Rescale(here, await here.ask(here.service.jobs.get, job)).wait()


async def fork(here: Here, job: str, origin: str = "") -> None:
    details = await here.ask(here.service.jobs.get, job)
    apps = await here.ask(here.service.machine.apps)
    await _Fork(here, details, await _points(here, job), origin, apps).wait()


async def upgrade(here: Here, job: str) -> None:
    details = await here.ask(here.service.jobs.get, job)
    await _Upgrade(here, details, await here.ask(here.service.machine.apps)).wait()


async def _points(here: Here, job: str) -> list[Option]:
    found = await here.ask(here.service.savepoints.page, job=job, limit=100)
    return [
        Option(each.id, f"{each.id}  {each.label}".strip() + f"  (epoch {each.epoch:,})")
        for each in found.items
    ]
