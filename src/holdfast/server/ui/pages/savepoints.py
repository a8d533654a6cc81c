"""Savepoints as a tree of what came from what, and what can be done with each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.errors import HoldfastError
from holdfast.server.ui import dialogs
from holdfast.server.ui.here import Here, text_of, trouble_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.live import Live
from holdfast.server.ui.pages.frame import built, page_at
from holdfast.server.ui.shell import heading, nothing, page, panel
from holdfast.server.ui.widgets import Button, Column, Facts, Field, LineageView, Option, Table

STEPS = (
    Column(name="uid", label="Step", head=True),
    Column(name="kind", label="Kind"),
    Column(name="keys", label="Keys", kind="number"),
    Column(name="variables", label="State", kind="mono"),
)


def register() -> None:
    @page_at("/savepoints")
    async def savepoints(request: Request, job: str = "", id: str = "") -> Response | None:  # noqa: A002
        return await built(request, build, job, id)


async def build(here: Here, job: str, chosen: str) -> None:
    await SavepointsPage(here, job, chosen).build()


class SavepointsPage:
    def __init__(self, here: Here, job: str, chosen: str) -> None:
        self._here, self._wanted, self._chosen = here, job, chosen
        self._details: models.SavepointDetails | None = None

    async def build(self) -> None:
        here = self._here
        with page(here, "Savepoints", place="/savepoints") as self._notice:
            with heading("Savepoints"), element("div", "actions"):
                self._take = Button("Take a savepoint", self._taken, look="main")
            with element("div", "bar"):
                self._job = Field("Job", self._wanted, kind="select", change=self._read)
            with panel() as self._box:
                self._tree = LineageView(self._choose)
            with panel() as self._none:
                nothing(
                    "No savepoint yet",
                    "A savepoint keeps the state of a job for good: to go back to, to look "
                    "into, to start another job from.",
                    command="holdfast savepoint take JOB",
                )
            with panel() as self._one:
                self._point()
            self._one.set_visibility(False)
            await self._read()
            if self._chosen:
                await self._choose(self._chosen)
            self._live = Live(here, self._read, notice=None)

    def _point(self) -> None:
        with element("div", "panel-head"):
            self._title = text("h2", "")
            with element("div", "actions push"):
                self._act("Restore", self._restore, look="main")
                self._act("Fork", self._fork)
                self._act("Verify", lambda id_: dialogs.verify_savepoint(self._here, id_))
                self._act("Export", lambda id_: dialogs.export_savepoint(self._here, id_))
                self._look = text("a", "Look inside", "btn")
                self._act(
                    "Delete",
                    lambda id_: dialogs.delete_savepoint(self._here, id_),
                    look="danger",
                )
        self._facts = Facts()
        self._steps = Table("Steps of the savepoint", STEPS)

    def _act(
        self, label: str, act: Callable[[str], Awaitable[None]], *, look: str = ""
    ) -> None:
        async def press() -> None:
            try:
                await act(self._chosen)
            except HoldfastError as error:
                self._notice.trouble(trouble_of(error))
            await self._read()

        Button(label, press, look=look, reason=self._here.why_not)

    async def _restore(self, savepoint: str) -> None:
        assert self._details is not None
        await dialogs.roll_back(self._here, self._details.job, savepoint)

    async def _fork(self, savepoint: str) -> None:
        assert self._details is not None
        await dialogs.fork(self._here, self._details.job, savepoint)

    async def _taken(self) -> None:
        await dialogs.take_savepoint(self._here, str(self._job.value))
        await self._read()

    async def _read(self) -> None:
        ask, service = self._here.ask, self._here.service
        trees = await ask(service.savepoints.trees)
        names = [tree.job for tree in trees]
        self._job.options([Option("", "All jobs"), *(Option(name, name) for name in names)])
        chosen = str(self._job.value)
        shown = [
            tree for tree in trees if tree.job == chosen or (not chosen and has_points(tree))
        ]
        self._tree.trees(shown)
        self._box.set_visibility(bool(shown))
        self._none.set_visibility(not shown)
        self._take.reason(self._here.why_not or ("" if chosen else "Choose the job below."))
        if self._chosen and self._chosen not in known_ids(trees):
            await self._choose("")

    async def _choose(self, savepoint: str) -> None:
        self._chosen = savepoint
        self._tree.choose(savepoint)
        self._one.set_visibility(bool(savepoint))
        if not savepoint:
            return
        try:
            found = await self._here.ask(self._here.service.savepoints.get, savepoint)
        except HoldfastError as error:
            self._notice.trouble(trouble_of(error))
            return
        self._notice.trouble(None)
        self._details = found
        self._title.set_text(f"{found.id} {found.label}".strip())
        self._look.props["href"] = f"/state?of={found.id}"
        self._facts.items(facts_of(found))
        self._steps.rows([step_row(each) for each in found.operators])


def has_points(tree: models.Tree) -> bool:
    """Whether there is anything to see but that the job has begun."""
    return bool(known_ids([tree])) or len(tree.timelines) > 1


def known_ids(trees: list[models.Tree]) -> set[str]:
    found: set[str] = set()

    def walk(timelines: list[models.TreeTimeline]) -> None:
        for line in timelines:
            for point in line.savepoints:
                found.add(point.id)
                walk(point.timelines)
            walk(line.timelines)

    for tree in trees:
        walk(tree.timelines)
    return found


def facts_of(found: models.SavepointDetails) -> list[dict[str, Any]]:
    return [
        {"label": "Job", "value": found.job, "href": f"/jobs/{found.job}"},
        {"label": "Taken", "value": text_of(found.created), "kind": "time"},
        {"label": "Epoch", "value": found.epoch, "kind": "number"},
        {"label": "Timeline", "value": found.timeline, "kind": "mono"},
        {"label": "Keys", "value": found.keys, "kind": "number"},
        {"label": "Size", "value": found.bytes, "kind": "bytes"},
        {"label": "Files", "value": found.files, "kind": "number"},
        {"label": "Format", "value": found.format},
        {"label": "Parallelism", "value": found.parallelism, "kind": "number"},
        {"label": "Key groups", "value": found.key_groups, "kind": "number"},
        {"label": "Backend", "value": found.backend},
        {"label": "Code", "value": found.code, "kind": "mono"},
        {"label": "Spark", "value": found.spark},
        {"label": "Watermark", "value": text_of(found.watermark), "kind": "time"},
        {"label": "Started from it", "value": ", ".join(found.used_by)},
    ]


def step_row(step: models.SavepointStep) -> dict[str, Any]:
    return {
        "key": step.uid,
        "uid": step.uid,
        "kind": step.kind,
        "keys": step.keys,
        "variables": ", ".join(f"{name}: {kind}" for name, kind in step.variables.items()),
    }
