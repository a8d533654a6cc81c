"""Graph, state and its growth, health, and what is being done to the job."""

from __future__ import annotations

from holdfast.server.ui.growth import COLUMNS as GROWTH
from holdfast.server.ui.growth import growth_row
from holdfast.server.ui.here import text_of
from holdfast.server.ui.html import element
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Column, Facts, GraphView, Notice, OperationView, Table

_EVENTS = (
    Column(name="at", label="When", kind="time"),
    Column(name="text", label="What"),
    Column(name="attempt", label="Attempt", kind="number", low=True),
)
_WORDS = {
    "ok": ("Healthy", "good"),
    "warning": ("Needs attention", "warn"),
    "failed": ("Not healthy", "bad"),
    "stopped": ("Not running", "calm"),
}


class Overview(Tab):
    async def build(self) -> None:
        with panel("Graph"):
            self._graph = GraphView()
        with panel("State of each step", tight=True):
            self._growth = Table(
                "State of each step", GROWTH, empty="No epoch has been committed yet."
            )
        with panel("Operation") as self._working:
            self._operation = OperationView()
        with element("div", "columns"):
            with panel("Health"):
                self._health = Notice()
                self._facts = Facts()
            with panel("Events", tight=True):
                self._events = Table("Events", _EVENTS, empty="Nothing has happened yet.")
        await self.read()

    async def read(self) -> None:
        ask, history = self.here.ask, self.here.service.history
        self._graph.graph(await ask(history.graph, self.job))
        steps = await ask(history.steps, self.job)
        self._growth.rows([growth_row(each) for each in steps])
        health = await ask(history.health, self.job)
        title, tone = _WORDS[health.status]
        self._health.say(title, health.reasons, tone=tone)
        events = await ask(history.events, self.job, limit=8)
        self._events.rows(
            [
                {
                    "key": f"{text_of(each.at)} {each.kind} {number}",
                    "at": text_of(each.at),
                    "text": each.text,
                    "attempt": each.attempt,
                }
                for number, each in enumerate(events)
            ]
        )
        job = await ask(self.here.service.jobs.get, self.job)
        held = job.operation
        self._working.set_visibility(held is not None)
        if held is not None:
            self._operation.operation(await ask(self.here.service.operations.get, held))
        self._facts.items(
            [
                {"label": "Process", "value": job.pid, "kind": "text"},
                {"label": "Host", "value": job.host},
                {"label": "Timeline", "value": job.timeline, "kind": "mono"},
                {"label": "Key groups", "value": job.key_groups, "kind": "number"},
                {"label": "Backend", "value": job.backend},
                {"label": "Code", "value": job.code, "kind": "mono"},
                {"label": "Restarts", "value": job.restarts, "kind": "number"},
                {"label": "Created", "value": text_of(job.created), "kind": "time"},
                {"label": "File", "value": job.app, "kind": "mono", "wide": True},
                {"label": "Directory", "value": job.directory, "kind": "mono", "wide": True},
            ]
        )
