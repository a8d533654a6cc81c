"""A dialog: what would happen, the choices, the button, and then what came of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from nicegui import ui
from pydantic import ValidationError

from holdfast.client import models, requests
from holdfast.errors import HoldfastError, UsageError
from holdfast.server.ui.here import Here, trouble_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.widgets import Button, Notice, OperationView, PlanView

LOOK_SECONDS = 0.5
LOOK_FIRST = "Look at the plan first."
LOOK_AGAIN = "The choices are other ones now: look at the plan again."


class Sheet:
    """Enter in a field presses its button, Escape closes it."""

    shows_result = True
    """Whether the result of its operation is listed as it is."""

    def __init__(self, here: Here, title: str, *, go: str, danger: bool = False) -> None:
        self.here = here
        self.key = secrets.token_hex(16)
        self._closed = asyncio.Event()
        with here.client.content:
            self._dialog = ui.dialog()
        self._dialog.props["aria-label"] = title
        self._dialog.on("hide", self._hidden)
        with self._dialog, ui.card().classes("sheet"):
            text("h2", title)
            self.body = element("div", "sheet-body")
            self.notice = Notice()
            self._view = OperationView()
            self.outcome = element("div", "sheet-outcome")
            with element("div", "ending"):
                self._close = Button("Cancel", self.close)
                self.extra = element("span", "why")
                self.button = Button(
                    go, self.pressed, look="danger" if danger else "main", reason=here.why_not
                )

    # -- to be said by each -----------------------------------------------------------

    async def act(self) -> models.Operation | None:
        """Do it: returns an operation to be followed, or nothing if it is done."""
        raise NotImplementedError

    def done(self, operation: models.Operation) -> None:
        """Called when it has succeeded."""

    # -- its life ---------------------------------------------------------------------

    def open(self) -> None:
        self._dialog.open()

    def close(self) -> None:
        self._dialog.close()

    async def wait(self) -> None:
        """Until it is closed."""
        self.open()
        await self._closed.wait()

    def _hidden(self) -> None:
        self._closed.set()
        self._dialog.delete()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def pressed(self) -> None:
        if self.here.why_not:
            return
        self.button.busy(True)
        operation = await self.guarded(self.act)
        if operation is None:
            self.button.busy(False)
            return
        operation = await self.follow(operation, hide_result=not self.shows_result)
        self.button.busy(False)
        if operation.state == "SUCCEEDED":
            self.body.set_visibility(False)
            self.button.set_visibility(False)
            self.extra.set_visibility(False)
            self._close.label("Close")
            self.done(operation)
        else:
            self.key = secrets.token_hex(16)

    async def guarded(
        self, call: Callable[[], Awaitable[models.Operation | None]]
    ) -> models.Operation | None:
        """What is refused is shown as it is."""
        self.notice.trouble(None)
        try:
            return await call()
        except HoldfastError as error:
            self.notice.trouble(trouble_of(error))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            told = UsageError("REQUEST_INVALID", f"{where}: {first['msg']}")
            self.notice.trouble(trouble_of(told))
        return None

    async def follow(
        self, operation: models.Operation, *, hide_result: bool = False
    ) -> models.Operation:
        """Show it until it is over; it goes on if the dialog is closed."""
        while True:
            if self.is_closed:
                return operation
            self._view.operation(operation, hide_result=hide_result)
            if operation.is_over:
                return operation
            await asyncio.sleep(LOOK_SECONDS)
            operation = await self.here.ask(self.here.service.operations.get, operation.id)

    def forget_operation(self) -> None:
        self._view.operation(None)


class PlanSheet(Sheet):
    """Its button works once the plan of just these choices was seen, and refuses nothing."""

    def __init__(self, here: Here, title: str, job: str, *, go: str) -> None:
        super().__init__(here, title, go=go)
        self.job = job
        self._version: str | None = None
        self._planned: requests.OperationRequest | None = None
        with self.body:
            self.fields = element("div", "fields")
            self.plan_view = PlanView()
        with self.extra:
            self.look = Button("Show the plan", self.plan, reason=here.why_not)
        self._require_plan(LOOK_FIRST)

    def request(self) -> requests.OperationRequest:
        """What the choices come to."""
        raise NotImplementedError

    def changed(self) -> None:
        """A choice is another one: a plan that was seen is not of it."""
        if self._planned is not None:
            self._planned = None
            self._require_plan(LOOK_AGAIN)

    def _require_plan(self, reason: str) -> None:
        self.button.reason(self.here.why_not or reason)

    async def plan(self) -> None:
        self.plan_view.plan(None)
        self._require_plan("The plan is being made.")
        self.look.busy(True)
        try:
            await self._plan()
        finally:
            if not self.is_closed:
                self.look.busy(False)

    async def _plan(self) -> None:
        asked: list[requests.OperationRequest] = []

        async def ask() -> models.Operation:
            asked.append(self.request())
            return await self.here.ask(
                self.here.service.operations.plan, self.here.actor, self.job, asked[0]
            )

        operation = await self.guarded(ask)
        if operation is None:
            self._require_plan(LOOK_FIRST)
            return
        operation = await self.follow(operation, hide_result=True)
        if self.is_closed:
            return
        if operation.state != "SUCCEEDED" or operation.result is None:
            self._require_plan("There is no plan; see above.")
            return
        self.forget_operation()
        self.plan_view.plan(operation.result)
        if operation.result.get("refused"):
            self._require_plan("The plan would be refused.")
            return
        details = await self.here.ask(self.here.service.jobs.get, self.job)
        self._version, self._planned = details.version, asked[0]
        self.button.reason(self.here.why_not)

    async def act(self) -> models.Operation | None:
        request = self.request()
        if request != self._planned:
            self.changed()
            return None
        return await self.here.ask(
            self.here.service.operations.ask,
            self.here.actor,
            self.job,
            request,
            key=self.key,
            version=self._version,
        )
