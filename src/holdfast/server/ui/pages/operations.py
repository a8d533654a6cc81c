"""What was asked for, by whom, and what came of it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.control.tracked.record import OperationState
from holdfast.server.ui.comparison import Comparison, verdict_of
from holdfast.server.ui.dialogs import cancel_operation
from holdfast.server.ui.here import Here, text_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.live import Live
from holdfast.server.ui.pages.frame import built, page_at
from holdfast.server.ui.pages.paging import Pager
from holdfast.server.ui.shell import heading, page, panel
from holdfast.server.ui.widgets import (
    Button,
    Column,
    Field,
    OperationView,
    Option,
    PlanView,
    Table,
)

PER_PAGE = 25
COLUMNS = (
    Column(name="id", label="Operation", kind="mono", head=True, act="show"),
    Column(name="kind", label="What"),
    Column(name="job", label="Job", href="address"),
    Column(name="state", label="State", kind="state"),
    Column(name="asked_by", label="Who"),
    Column(name="created", label="When", kind="time"),
    Column(name="seconds", label="Took", kind="seconds"),
    Column(name="outcome", label="Result"),
)


def register() -> None:
    @page_at("/operations")
    async def operations(request: Request) -> Response | None:
        return await built(request, build)


async def build(here: Here) -> None:
    await OperationsPage(here).build()


class OperationsPage:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._chosen = ""

    async def build(self) -> None:
        with page(self._here, "Operations", place="/operations") as notice:
            heading("Operations")
            with element("div", "bar"):
                self._state = Field(
                    "State",
                    kind="select",
                    change=self._filtered,
                    options=[
                        Option("", "All states"),
                        *(Option(each.value, each.value.lower()) for each in OperationState),
                    ],
                )
            with panel() as self._details:
                with element("div", "panel-head"):
                    self._title = text("h2", "")
                    with element("div", "push"):
                        self._cancel = Button("Cancel…", self._cancelled)
                        Button("Close", lambda: self._show(""))
                self._view = OperationView()
                self._plan = PlanView()
                self._comparison = Comparison()
            with panel(tight=True):
                self._table = Table(
                    "Operations",
                    COLUMNS,
                    act=lambda _, key: self._show(key),
                    empty="Nothing has been asked for yet: savepoints, stops, restores and the "
                    "like are listed here.",
                )
                self._pager = Pager(self._read)
            self._details.set_visibility(False)
            await self._read()
            Live(
                self._here,
                self._read,
                notice=notice,
                matters=lambda change: change.kind == "operation",
            )

    async def _read(self) -> None:
        state = str(self._state.value)
        found = await self._here.ask(
            self._here.service.operations.page,
            state=OperationState(state) if state else None,
            cursor=self._pager.cursor,
            limit=PER_PAGE,
        )
        self._table.rows([row_of(each) for each in found.items])
        self._pager.told(found.next, f"Page {self._pager.number}")
        if self._chosen:
            await self._show(self._chosen)

    async def _filtered(self) -> None:
        self._pager.reset()
        await self._read()

    async def _show(self, operation: str) -> None:
        self._chosen = operation
        self._table.choose(operation)
        self._details.set_visibility(bool(operation))
        if not operation:
            return
        found = await self._here.ask(self._here.service.operations.get, operation)
        is_plan, is_comparison = found.kind == "plan", found.kind == "compare"
        title = f"Operation {found.id}"
        if self._title.text != title:
            self._title.set_text(title)
        self._cancel.reason(self._here.why_not or why_not_cancelled(found))
        self._view.operation(found, hide_result=is_plan or is_comparison)
        self._plan.plan(found.result if is_plan else None)
        self._comparison.show(found.result if is_comparison else None)

    async def _cancelled(self) -> None:
        found = await self._here.ask(self._here.service.operations.get, self._chosen)
        await cancel_operation(self._here, found)


def why_not_cancelled(operation: models.Operation) -> str:
    return "" if OperationState(operation.state).is_open else "It is over."


def row_of(operation: models.Operation) -> dict[str, Any]:
    seconds = None
    if operation.ended is not None:
        began = operation.started or operation.created
        seconds = (operation.ended - began).total_seconds()
    return {
        "key": operation.id,
        "id": operation.id,
        "kind": kind_of(operation),
        "job": operation.job,
        "address": f"/jobs/{operation.job}",
        "state": operation.state,
        "asked_by": operation.asked_by,
        "created": text_of(operation.created),
        "seconds": seconds,
        "outcome": outcome_of(operation),
    }


def kind_of(operation: models.Operation) -> str:
    if operation.kind == "plan":
        return f"plan of {operation.parameters.get('operation', '?')}"
    return operation.kind


def outcome_of(operation: models.Operation) -> str:
    """In one line."""
    if operation.error is not None:
        return operation.error.name
    if operation.result is None:
        at = operation.progress
        return f"{at.what} {at.done} of {at.total}" if at is not None else ""
    result = operation.result
    if operation.kind == "compare":
        return verdict_of(result)[0]
    for name in ("savepoint", "sentence", "id", "timeline"):
        if isinstance(result.get(name), str) and result[name]:
            return str(result[name])
    return ", ".join(f"{name} {value}" for name, value in list(result.items())[:2])
