"""Start a job from a file that may be started."""

from __future__ import annotations

from holdfast.client import models, requests
from holdfast.job.arguments import parse_arguments
from holdfast.server.ui.dialogs.sheet import Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import element, text
from holdfast.server.ui.widgets import Field, Option


class _Start(Sheet):
    def __init__(self, here: Here, apps: list[models.AppFile], roots: list[str]) -> None:
        super().__init__(here, "Start a job", go="Start")
        self._apps = {each.path: each for each in apps}
        with self.body:
            if not apps:
                self._explain(roots)
                return
            first = apps[0]
            self._app = Field(
                "File",
                first.path,
                kind="select",
                change=self._other_file,
                focus=True,
                options=[Option(each.path, _shown(each)) for each in apps],
            )
            self._job = Field("Job", kind="select", enter=self.pressed)
            self._parallelism = Field(
                "Parallelism",
                kind="number",
                least=1,
                most=4096,
                placeholder="as the file says",
                enter=self.pressed,
            )
            self._arguments = Field(
                "Arguments",
                kind="area",
                placeholder="NAME=VALUE, one per line",
                hint="What the job's file declares; the others have their defaults.",
            )
            self._name = Field(
                "Run as",
                placeholder="as the file says",
                enter=self.pressed,
                hint="Another name makes it another job, with state of its own.",
            )
            self._end = Field(
                "End when everything that is there now has been processed",
                value=False,
                kind="check",
            )
            self._other_file()

    def _explain(self, roots: list[str]) -> None:
        text("p", "There is no file that may be started from here.")
        where = ", ".join(roots) or "the setting server_job_roots"
        with element("p", "muted"):
            text("span", f"Put job files below {where}, or run one once on the machine: ")
        text("code", "holdfast run app.py", "command")
        self.button.reason("There is no file to start.")

    def _other_file(self) -> None:
        jobs = self._apps[str(self._app.value)].jobs
        self._job.options([Option(each, each) for each in jobs] or [Option("", "the only one")])
        self._job.set(jobs[0] if jobs else "")

    async def act(self) -> models.Operation:
        several = len(self._apps[str(self._app.value)].jobs) > 1
        request = requests.StartRequest(
            app=str(self._app.value),
            job=self._job.text if several else None,
            name=self._name.text or None,
            parallelism=self._parallelism.number,
            arguments=parse_arguments(self._arguments.text.splitlines()),
            available_now=bool(self._end.value),
            start_from=None,
        )
        return await self.here.ask(
            self.here.service.operations.start, self.here.actor, request, key=self.key
        )


def _shown(app: models.AppFile) -> str:
    return f"{app.path}  ({', '.join(app.jobs)})" if app.jobs else app.path


async def start(here: Here) -> None:
    apps = await here.ask(here.service.machine.apps)
    info = await here.ask(here.service.machine.info)
    await _Start(here, apps, info.job_roots).wait()
