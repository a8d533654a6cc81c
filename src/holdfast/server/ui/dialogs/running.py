"""Stop, resume, and a savepoint on the way."""

from __future__ import annotations

from holdfast.client import models, requests
from holdfast.server.ui.dialogs.sheet import Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.widgets import Field, Option

WAYS = (
    Option(
        "stop", "Stop", "Ends after the running epoch. State is kept; resume goes on from it."
    ),
    Option("savepoint", "Stop with a savepoint", "The same, and then a savepoint of its end."),
    Option("suspend", "Suspend", "Ends after the running epoch, and is meant to be resumed."),
    Option(
        "cancel", "Cancel", "Ends now. The open epoch is run again when the job is resumed."
    ),
)


class _Stop(Sheet):
    def __init__(self, here: Here, job: models.JobDetails) -> None:
        super().__init__(here, f"Stop {job.name}", go="Stop", danger=True)
        self._job = job.name
        with self.body:
            at = "before its first epoch" if job.epoch is None else f"after epoch {job.epoch:,}"
            text("p", f"{job.name} is {job.state.lower()}, {at}.", "muted")
            self._way = Field("How", "stop", kind="radio", options=WAYS, enter=self.pressed)
            self._label = Field(
                "Label of the savepoint",
                placeholder="before the upgrade",
                hint="Only with a savepoint.",
                enter=self.pressed,
            )

    async def act(self) -> models.Operation:
        request: requests.OperationRequest
        match self._way.value:
            case "savepoint":
                request = requests.StopRequest(savepoint=True, label=self._label.text)
            case "suspend":
                request = requests.SuspendRequest()
            case "cancel":
                request = requests.CancelRequest()
            case _:
                request = requests.StopRequest(savepoint=False)
        return await self.here.ask(
            self.here.service.operations.ask, self.here.actor, self._job, request, key=self.key
        )


class _Resume(Sheet):
    def __init__(self, here: Here, job: models.JobDetails) -> None:
        super().__init__(here, f"Resume {job.name}", go="Resume")
        self._job = job.name
        with self.body:
            where = (
                "from the beginning: it has no committed epoch."
                if job.epoch is None
                else f"behind epoch {job.epoch:,}, with its state."
            )
            text("p", f"Runs {job.name} again as it was last started, {where}")
            if job.app:
                text("p", job.app, "mono muted")

    async def act(self) -> models.Operation:
        return await self.here.ask(
            self.here.service.operations.ask,
            self.here.actor,
            self._job,
            requests.ResumeRequest(),
            key=self.key,
        )


class _Savepoint(Sheet):
    def __init__(self, here: Here, job: models.JobDetails) -> None:
        super().__init__(here, f"Savepoint of {job.name}", go="Take savepoint")
        self._job = job.name
        with self.body:
            at = "its newest committed epoch"
            if job.epoch is not None:
                at += f" (now {job.epoch:,})"
            text("p", f"Keeps the state and the source positions of {at}. The job goes on.")
            self._label = Field(
                "Label", placeholder="before the upgrade", focus=True, enter=self.pressed
            )
            self._canonical = Field(
                "Canonical",
                value=False,
                kind="check",
                hint="State as plain Parquet columns, for other tools and other versions. "
                "Takes Spark, so some seconds more.",
            )

    async def act(self) -> models.Operation:
        request = requests.SavepointRequest(
            label=self._label.text, canonical=bool(self._canonical.value)
        )
        return await self.here.ask(
            self.here.service.operations.ask, self.here.actor, self._job, request, key=self.key
        )


async def stop(here: Here, job: str) -> None:
    await _Stop(here, await here.ask(here.service.jobs.get, job)).wait()


async def resume(here: Here, job: str) -> None:
    await _Resume(here, await here.ask(here.service.jobs.get, job)).wait()


async def take_savepoint(here: Here, job: str) -> None:
    await _Savepoint(here, await here.ask(here.service.jobs.get, job)).wait()
