"""Attempts and how they failed: class, cause, fix; the trace for those who ask."""

from __future__ import annotations

import json
from typing import Any

from holdfast.client import models
from holdfast.server.ui.here import text_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.pages.paging import Pager
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Button, Column, Notice, Table

PER_PAGE = 20
COLUMNS = (
    Column(name="number", label="Attempt", kind="number", head=True),
    Column(name="state", label="Ended as", kind="state"),
    Column(name="started", label="Started", kind="time"),
    Column(name="ended", label="Ended", kind="time"),
    Column(name="began_from", label="Began from", low=True),
    Column(name="code", label="Code", kind="mono", low=True),
    Column(name="pid", label="Process", kind="text", low=True),
    Column(name="failure_class", label="Class"),
    Column(name="error", label="Error", kind="trouble"),
    Column(name="actions", label="More", kind="actions"),
)


class Attempts(Tab):
    async def build(self) -> None:
        with panel("Attempts and exceptions", tight=True):
            self._table = Table(
                "Attempts", COLUMNS, empty="The job has not been started yet.", act=self._act
            )
            self._pager = Pager(self.read)
        with panel() as self._details:
            with element("div", "panel-head"):
                self._title = text("h2", "")
                with element("div", "push"):
                    Button("Close", self._close)
            self._notice = Notice()
            self._trace = text("pre", "", "lines trace")
            self._trace.props["tabindex"] = "0"
            self._trace.props["aria-label"] = "Trace"
        self._details.set_visibility(False)
        await self.read()

    async def read(self) -> None:
        found = await self.here.ask(
            self.here.service.history.attempts,
            self.job,
            cursor=self._pager.cursor,
            limit=PER_PAGE,
        )
        self._attempts = {str(each.number): each for each in found.items}
        self._table.rows([row_of(each) for each in found.items])
        self._pager.told(found.next, f"Page {self._pager.number}")

    def _act(self, _: str, key: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.error is None:
            return
        self._details.set_visibility(True)
        self._title.set_text(f"Attempt {attempt.number}: {attempt.failure_class or 'failed'}")
        self._notice.trouble(attempt.error)
        self._trace.set_text(trace_of(attempt.error))
        self._trace.set_visibility(bool(self._trace.text))
        self._table.choose(key)

    def _close(self) -> None:
        self._details.set_visibility(False)
        self._table.choose("")


def row_of(attempt: models.Attempt) -> dict[str, Any]:
    more = [{"name": "trace", "label": "Details"}] if attempt.error is not None else []
    return {
        "key": str(attempt.number),
        "label": f"attempt {attempt.number}",
        "number": attempt.number,
        "state": attempt.state,
        "started": text_of(attempt.started),
        "ended": text_of(attempt.ended),
        "began_from": attempt.began_from,
        "code": attempt.code,
        "pid": attempt.pid,
        "failure_class": attempt.failure_class,
        "error": (
            None
            if attempt.error is None
            else {"name": attempt.error.name, "message": attempt.error.message}
        ),
        "actions": more,
    }


def trace_of(error: models.Trouble) -> str:
    """The trace, and what else is known of the error."""
    facts = dict(error.facts)
    traces = [str(facts.pop(name)) for name in ("trace", "stack", "traceback") if name in facts]
    rest = [json.dumps(facts, indent=2, default=str)] if facts else []
    return "\n\n".join([*traces, *rest])
