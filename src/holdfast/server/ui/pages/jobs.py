"""All jobs, as they are now."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.control.states import RunState
from holdfast.server.ui import dialogs
from holdfast.server.ui.here import Here, text_of
from holdfast.server.ui.html import element
from holdfast.server.ui.live import Live
from holdfast.server.ui.pages.frame import built, is_gone, page_at
from holdfast.server.ui.pages.paging import Pager
from holdfast.server.ui.shell import heading, nothing, page, panel
from holdfast.server.ui.widgets import Button, Column, Field, Option, Table

PER_PAGE = 25
COLUMNS = (
    Column(name="name", label="Job", head=True, href="address"),
    Column(name="state", label="State", kind="state"),
    Column(name="attempt", label="Attempt", kind="number"),
    Column(name="up_since", label="Uptime", kind="uptime"),
    Column(name="rate", label="Rows/s", kind="rate"),
    Column(name="lag", label="Lag", kind="number"),
    Column(name="epoch", label="Epoch", kind="number"),
    Column(name="epoch_ended", label="Last epoch", kind="age"),
    Column(name="recent", label="Rows per epoch", kind="spark", low=True),
    Column(name="actions", label="Actions", kind="actions"),
)
_ANY = ""
_ACTIVE = "active"


def register() -> None:
    @page_at("/")
    async def jobs(request: Request) -> Response | None:
        return await built(request, build)


async def build(here: Here) -> None:
    await JobsPage(here).build()


class JobsPage:
    def __init__(self, here: Here) -> None:
        self._here = here

    async def build(self) -> None:
        here = self._here
        with page(here, "Jobs", place="/") as notice:
            with heading("Jobs"), element("div", "actions"):
                Button("Start a job", self._start, look="main", reason=here.why_not)
            with element("div", "bar") as self._bar:
                self._contains = Field(
                    "Name contains",
                    kind="search",
                    change=self._filtered,
                    hide_label=True,
                    placeholder="Filter by name",
                ).classes("grow")
                self._state = Field(
                    "State",
                    _ANY,
                    kind="select",
                    change=self._filtered,
                    hide_label=True,
                    options=[
                        Option(_ANY, "All states"),
                        Option(_ACTIVE, "Active"),
                        *(Option(each.value, each.value.lower()) for each in RunState),
                    ],
                )
            with panel(tight=True) as self._list:
                self._table = Table(
                    "Jobs", COLUMNS, empty="No job fits the filter.", act=self._act
                )
                self._pager = Pager(self._turned, forward="Next", back="Previous")
            self._none = nothing(
                "No job yet",
                "A job is a Python file. Run one, and it appears here:",
                command="holdfast run examples/wiki_diffs.py",
            )
            await self._read()
            self._live = Live(here, self._read, notice=notice)

    async def _read(self) -> None:
        found = await self._here.ask(
            self._here.service.jobs.page,
            contains=self._contains.text,
            states=_states(str(self._state.value)),
            cursor=self._pager.cursor,
            limit=PER_PAGE,
        )
        self._table.rows([row_of(each, self._here.why_not) for each in found.items])
        filtered = bool(self._contains.text or self._state.value)
        empty = not found.items and not filtered and self._pager.cursor is None
        self._none.set_visibility(empty)
        self._list.set_visibility(not empty)
        self._bar.set_visibility(not empty)
        said = (
            f"{len(found.items)} jobs"
            if self._pager.number == 1 and not found.next
            else (f"Page {self._pager.number}, {PER_PAGE} jobs each")
        )
        self._pager.told(found.next, said)

    async def _filtered(self) -> None:
        self._pager.reset()
        await self._read()

    async def _turned(self) -> None:
        await self._read()

    async def _start(self) -> None:
        await dialogs.start(self._here)

    async def _act(self, action: str, job: str) -> None:
        match action:
            case "stop":
                await dialogs.stop(self._here, job)
            case "savepoint":
                await dialogs.take_savepoint(self._here, job)
            case "resume":
                await dialogs.resume(self._here, job)
        self._live.soon()


def row_of(job: models.JobSummary, why_not: str) -> dict[str, Any]:
    state = job.state
    gone = is_gone(job)
    return {
        "key": job.name,
        "name": job.name,
        "address": f"/jobs/{job.name}",
        "state": "DEAD" if gone else state,
        "state_title": "Its process is gone." if gone else None,
        "attempt": job.attempt,
        "up_since": text_of(job.started) if job.uptime_seconds is not None else "",
        "rate": job.rows_per_second if job.running else None,
        "lag": job.lag,
        "epoch": job.epoch,
        "epoch_ended": text_of(job.epoch_ended),
        "recent": job.recent_rows,
        "actions": _actions(job, why_not),
    }


def _actions(job: models.JobSummary, why_not: str) -> list[dict[str, Any]]:
    if RunState(job.state).is_active and not is_gone(job):
        named = [("savepoint", "Savepoint"), ("stop", "Stop…")]
    else:
        named = [("resume", "Resume")]
    held = f"Operation {job.operation} holds the job." if job.operation else ""
    return [
        {"name": name, "label": label, "reason": why_not or held, "danger": name == "stop"}
        for name, label in named
    ]


def _states(chosen: str) -> list[RunState]:
    if chosen == _ACTIVE:
        return [each for each in RunState if each.is_active]
    return [RunState(chosen)] if chosen else []
