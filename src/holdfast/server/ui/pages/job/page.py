"""The page of a job: what it is now, what can be done, and the tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError
from holdfast.server.ui import dialogs
from holdfast.server.ui.here import Here, text_of, trouble_of
from holdfast.server.ui.html import element
from holdfast.server.ui.live import Live, of_job
from holdfast.server.ui.pages.frame import built, is_gone, page_at
from holdfast.server.ui.pages.job import (
    attempts,
    configuration,
    epochs,
    event_time,
    logs,
    overview,
    sources,
)
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import heading, page
from holdfast.server.ui.widgets import Button, Facts, Notice, StatePill

TABS: tuple[tuple[str, str, type[Tab]], ...] = (
    ("overview", "Overview", overview.Overview),
    ("epochs", "Epochs", epochs.Epochs),
    ("attempts", "Attempts", attempts.Attempts),
    ("time", "Event time", event_time.EventTime),
    ("sources", "Sources", sources.Sources),
    ("configuration", "Configuration", configuration.Configuration),
    ("logs", "Logs", logs.Logs),
)
Dialog = Callable[[Here, str], Awaitable[None]]


def register() -> None:
    @page_at("/jobs/{name}")
    async def job(request: Request, name: str, tab: str = "overview") -> Response | None:
        return await built(request, build, name, tab)


async def build(here: Here, name: str, tab: str) -> None:
    await JobPage(here, name).build(tab)


class JobPage:
    def __init__(self, here: Here, name: str) -> None:
        self._here, self._name = here, name
        self._tabs: dict[str, Tab] = {}
        self._shown = "overview"
        self._building = asyncio.Lock()

    async def build(self, tab: str) -> None:
        here = self._here
        details = await here.ask(here.service.jobs.get, self._name)
        known = [name for name, _, _ in TABS]
        self._shown = tab if tab in known else "overview"
        with page(here, self._name, place="/") as self._notice:
            with heading(self._name, crumb=("Jobs", "/")):
                self._state = StatePill()
                self._actions()
            self._numbers = Facts(big=True).classes("panel")
            self._failure = Notice()
            self._tab_bar()
            self._show(details)
            await self._fill(self._shown)
            self._live = Live(here, self._read, matters=of_job(self._name), notice=self._notice)

    # -- what can be done -------------------------------------------------------------

    def _actions(self) -> None:
        with element("div", "actions"):
            self._savepoint = self._button("Savepoint", dialogs.take_savepoint)
            self._rescale = self._button("Rescale", dialogs.rescale)
            self._restore = self._button("Restore", dialogs.roll_back)
            self._upgrade = self._button("Upgrade", dialogs.upgrade)
            self._fork = self._button("Fork", dialogs.fork)
            self._compare = self._button("Compare output", dialogs.compare)
            self._promote = self._button("Promote", dialogs.promote)
            self._resume = self._button("Resume", dialogs.resume, look="main")
            self._stop = self._button("Stop", dialogs.stop, look="danger")

    def _button(self, label: str, dialog: Dialog, look: str = "") -> Button:
        async def press() -> None:
            try:
                await dialog(self._here, self._name)
            except HoldfastError as error:
                self._notice.trouble(trouble_of(error))
            else:
                self._live.soon()

        return Button(label, press, look=look, reason=self._here.why_not)

    def _reasons(self, job: models.JobDetails) -> None:
        why_not = self._here.why_not
        if not why_not and job.operation:
            why_not = f"Operation {job.operation} holds the job."
        runs = RunState(job.state).is_active and not is_gone(job)
        no_epoch = "" if job.epoch is not None else "The job has no committed epoch yet."
        self._savepoint.reason(why_not or no_epoch)
        for each in (self._rescale, self._fork, self._upgrade, self._promote):
            each.reason(why_not or no_epoch)
        self._compare.reason(self._here.why_not or no_epoch)
        for each in (self._compare, self._promote):
            each.set_visibility(job.forked_from is not None)
        self._restore.reason(why_not)
        self._resume.reason(why_not)
        self._stop.reason(why_not)
        self._resume.set_visibility(not runs)
        self._stop.set_visibility(runs)

    # -- what it is now ---------------------------------------------------------------

    def _show(self, job: models.JobDetails) -> None:
        gone = is_gone(job)
        self._state.word("DEAD" if gone else job.state)
        self._numbers.items(numbers_of(job))
        is_down = not RunState(job.state).is_active or gone
        self._failure.trouble(job.error if is_down else None)
        self._reasons(job)

    async def _read(self) -> None:
        self._show(await self._here.ask(self._here.service.jobs.get, self._name))
        async with self._building:
            tab = self._tabs.get(self._shown)
            if tab is not None:
                await tab.read()

    # -- tabs -------------------------------------------------------------------------

    def _tab_bar(self) -> None:
        with ui.tabs(on_change=self._turned).props(
            "no-caps align=left outside-arrows mobile-arrows"
        ) as tabs:
            for name, label, _ in TABS:
                ui.tab(name, label=label)
        self._panels: dict[str, Any] = {}
        with ui.tab_panels(tabs, value=self._shown, animated=False).props("keep-alive"):
            for name, _, _ in TABS:
                self._panels[name] = ui.tab_panel(name)

    async def _turned(self, event: Any) -> None:
        self._shown = str(event.value)
        ui.run_javascript(
            f"history.replaceState(history.state, '', '?tab={self._shown}')"
            if self._shown in self._panels
            else ""
        )
        try:
            await self._fill(self._shown)
        except HoldfastError as error:
            self._notice.trouble(trouble_of(error))

    async def _fill(self, name: str) -> None:
        """Tabs are built when they are first looked at."""
        async with self._building:
            tab = self._tabs.get(name)
            if tab is not None:
                await tab.read()
                return
            made = next(kind for each, _, kind in TABS if each == name)(self._here, self._name)
            with self._panels[name]:
                await made.build()
            self._tabs[name] = made


def numbers_of(job: models.JobDetails) -> list[dict[str, Any]]:
    return [
        {"label": "Attempt", "value": job.attempt, "kind": "number"},
        {
            "label": "Uptime",
            "value": text_of(job.started) if job.uptime_seconds is not None else "",
            "kind": "uptime",
        },
        {
            "label": "Rows/s",
            "value": job.rows_per_second if job.running else None,
            "kind": "rate",
        },
        {"label": "Lag", "value": job.lag, "kind": "number"},
        {"label": "Epoch", "value": job.epoch, "kind": "number"},
        {"label": "Last epoch", "value": text_of(job.epoch_ended), "kind": "age"},
        {"label": "Keys", "value": job.state_rows, "kind": "number"},
        {"label": "State", "value": job.state_bytes, "kind": "bytes"},
        {"label": "Parallelism", "value": job.parallelism, "kind": "number"},
    ]
