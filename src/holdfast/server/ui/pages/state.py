"""State from inside: one key, all keys, SQL, and two savepoints compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.errors import HoldfastError, UsageError
from holdfast.server.ui.here import Here, trouble_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.pages.frame import built, page_at
from holdfast.server.ui.shell import heading, nothing, page, panel
from holdfast.server.ui.widgets import Button, Column, Facts, Field, Notice, Option, Table

PER_PAGE = 50
MOST_ROWS = 500
_FIRST_LOOK = "Reading state with Spark. The first look takes some seconds; later ones do not."


def register() -> None:
    @page_at("/state")
    async def state(request: Request, of: str = "") -> Response | None:
        return await built(request, build, of)


async def build(here: Here, of: str) -> None:
    await StatePage(here).build(of)


class StatePage:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._tables: models.StateTables | None = None
        self._offset = 0

    async def build(self, of: str) -> None:
        places = await self._places()
        with page(self._here, "State", place="/state") as self._notice:
            heading("State")
            if not places:
                with panel():
                    nothing(
                        "No state yet",
                        "Once a job has committed an epoch, its state can be looked into here.",
                        command="holdfast run examples/wiki_diffs.py",
                    )
                return
            known = [each.value for each in places]
            chosen = of if of in known else known[0]
            with panel():
                with element("div", "bar"):
                    self._of = Field(
                        "State of",
                        chosen,
                        kind="select",
                        options=places,
                        change=self._other,
                    ).classes("grow")
                    self._open = Button("Open", self._opened, look="main")
                    self._fresh = Button("Newest epoch", self._newest)
                self._moment = Facts()
                self._waiting = Notice()
            self._tabs(places)
            if of:
                ui.timer(0.05, self._opened, once=True)

    async def _places(self) -> list[Option]:
        ask, service = self._here.ask, self._here.service
        jobs = await ask(service.jobs.page, limit=200)
        points = await ask(service.savepoints.page, limit=200)
        return [
            *(
                Option(each.name, f"{each.name}, its last epoch")
                for each in jobs.items
                if each.epoch is not None
            ),
            *(
                Option(each.id, f"{each.job}, savepoint {each.id} {each.label}".strip())
                for each in points.items
            ),
        ]

    def _tabs(self, places: list[Option]) -> None:
        with ui.tabs().props("no-caps align=left outside-arrows mobile-arrows") as tabs:
            ui.tab("lookup", label="Look up")
            ui.tab("browse", label="Browse")
            ui.tab("sql", label="SQL")
            ui.tab("diff", label="Compare")
        with ui.tab_panels(tabs, value="lookup", animated=False).props("keep-alive"):
            with ui.tab_panel("lookup"):
                self._look_up_tab()
            with ui.tab_panel("browse"):
                self._browse_tab()
            with ui.tab_panel("sql"):
                self._sql_tab()
            with ui.tab_panel("diff"):
                self._diff_tab(places)

    # -- which state ------------------------------------------------------------------

    def _other(self) -> None:
        self._tables = None
        self._moment.items([])

    async def _opened(self) -> None:
        await self._guarded(self._load)

    async def _newest(self) -> None:
        await self._guarded(self._load, True)

    async def _load(self, fresh: bool = False) -> None:
        found = await self._here.ask(
            self._here.service.state.tables, str(self._of.value), fresh=fresh
        )
        self._tables = found
        self._moment.items(
            [
                {"label": "Moment", "value": found.title, "wide": True},
                *(
                    {
                        "label": f"Table {each.table}",
                        "value": each.keys,
                        "kind": "number",
                        "note": "keys",
                        "title": ", ".join(each.columns),
                    }
                    for each in found.tables
                ),
            ]
        )
        options = [Option(each.table, each.table) for each in found.tables]
        for field in (self._table, self._browsed):
            field.options(options)
            if field.value not in [each.value for each in options] and options:
                field.set(options[0].value)
        if not self._sql.text and options:
            self._sql.set(f'FROM "{options[0].value}" LIMIT 20')

    async def _ready(self) -> models.StateTables:
        if self._tables is None:
            await self._load()
        assert self._tables is not None
        return self._tables

    async def _guarded(self, call: Any, *args: Any) -> None:
        """Shows that it waits, and what goes wrong."""
        self._notice.trouble(None)
        self._waiting.say(_FIRST_LOOK, tone="busy")
        for each in (self._open, self._fresh):
            each.busy(True)
        try:
            await call(*args)
        except HoldfastError as error:
            self._notice.trouble(trouble_of(error))
        finally:
            self._waiting.say("")
            for each in (self._open, self._fresh):
                each.busy(False)

    # -- one key ----------------------------------------------------------------------

    def _look_up_tab(self) -> None:
        with panel():
            with element("div", "bar"):
                self._table = Field("Table", kind="select")
                self._key = Field(
                    "Key",
                    placeholder="Of several columns: with commas between them",
                    enter=self._looked_up,
                ).classes("grow")
                Button("Look up", self._looked_up, look="main")
            self._found = Table("What was found", (), empty="Nothing has been looked up yet.")

    async def _looked_up(self) -> None:
        await self._guarded(self._look_up)

    async def _look_up(self) -> None:
        if not self._key.text:
            raise UsageError(
                "KEY_INCOMPLETE", "which key?", fix="type it, as it is in the state."
            )
        await self._ready()
        parts = [part.strip() for part in self._key.text.split(",")]
        found = await self._here.ask(
            self._here.service.state.get, str(self._of.value), str(self._table.value), parts
        )
        _fill(self._found, found.columns, found.rows, empty="This key is not known.")

    # -- all keys ---------------------------------------------------------------------

    def _browse_tab(self) -> None:
        with panel():
            with element("div", "bar"):
                self._browsed = Field("Table", kind="select", change=self._first_page)
                Button("Browse", self._first_page, look="main")
            self._rows = Table("Rows of the table", (), empty="Choose a table, and browse.")
            with element("div", "bar"):
                self._back = Button("Previous", lambda: self._turn(-PER_PAGE))
                self._forward = Button("Next", lambda: self._turn(PER_PAGE))
                self._place = text("span", "", "muted")
            self._back.reason("This is the first page.")
            self._forward.reason("Browse first.")

    async def _first_page(self) -> None:
        self._offset = 0
        await self._guarded(self._browse)

    async def _turn(self, by: int) -> None:
        self._offset = max(0, self._offset + by)
        await self._guarded(self._browse)

    async def _browse(self) -> None:
        await self._ready()
        found = await self._here.ask(
            self._here.service.state.browse,
            str(self._of.value),
            str(self._browsed.value),
            offset=self._offset,
            limit=PER_PAGE,
        )
        _fill(self._rows, found.columns, found.rows, empty="The table is empty.")
        self._back.reason("" if self._offset else "This is the first page.")
        self._forward.reason("" if found.cut else "There is no more.")
        last = self._offset + len(found.rows)
        self._place.set_text(f"{self._offset + 1:,} to {last:,}" if found.rows else "")

    # -- SQL --------------------------------------------------------------------------

    def _sql_tab(self) -> None:
        with panel():
            self._sql = Field(
                "SQL",
                kind="area",
                enter=self._queried,
                hint="DuckDB's SQL, reading only. Control and Enter runs it.",
            )
            with element("div", "bar"):
                Button("Run", self._queried, look="main")
                self._said = text("span", "", "muted")
            self._answer = Table("Answer", (), empty="Nothing has been asked yet.")

    async def _queried(self) -> None:
        await self._guarded(self._query)

    async def _query(self) -> None:
        await self._ready()
        found = await self._here.ask(
            self._here.service.state.query,
            str(self._of.value),
            self._sql.text,
            limit=MOST_ROWS,
        )
        _fill(self._answer, found.columns, found.rows, empty="The answer has no rows.")
        more = ", and there are more" if found.cut else ""
        self._said.set_text(f"{len(found.rows):,} rows{more}")

    # -- two of them ------------------------------------------------------------------

    def _diff_tab(self, places: list[Option]) -> None:
        first = places[-1].value
        with panel():
            with element("div", "bar"):
                self._before = Field("Before", first, kind="select", options=places).classes(
                    "grow"
                )
                self._after = Field(
                    "After", places[0].value, kind="select", options=places
                ).classes("grow")
                Button("Compare", self._compared, look="main")
            self._verdict = Notice()
            self._differences = element("div", "fields")

    async def _compared(self) -> None:
        await self._guarded(self._compare)

    async def _compare(self) -> None:
        found = await self._here.ask(
            self._here.service.state.diff, str(self._before.value), str(self._after.value)
        )
        title = "The state is the same." if found.same else "The state is not the same."
        self._verdict.say(
            title,
            [f"{found.before} against {found.after}"],
            tone="good" if found.same else "warn",
        )
        self._differences.clear()
        with self._differences:
            for each in found.tables:
                Facts(
                    [
                        {"label": "Table", "value": each.table, "kind": "mono"},
                        {"label": "Keys before", "value": each.keys_before, "kind": "number"},
                        {"label": "Keys after", "value": each.keys_after, "kind": "number"},
                        {"label": "Added", "value": each.added, "kind": "number"},
                        {"label": "Removed", "value": each.removed, "kind": "number"},
                        {"label": "Changed", "value": each.changed, "kind": "number"},
                    ]
                )
                if each.rows:
                    table = Table(f"Differences in {each.table}", ())
                    _fill(table, each.columns, each.rows)


def _fill(
    table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = ""
) -> None:
    table.columns(
        [
            Column(name=f"c{at}", label=name, kind=_kind(rows, at))
            for at, name in enumerate(columns)
        ]
    )
    table.rows(
        [
            {"key": str(number), **{f"c{at}": _cell(value) for at, value in enumerate(row)}}
            for number, row in enumerate(rows)
        ]
    )
    table.show(empty=empty or "Nothing here.")


def _kind(rows: Sequence[Sequence[Any]], at: int) -> str:
    values = [row[at] for row in rows if row[at] is not None]
    whole = values and all(
        isinstance(each, int) and not isinstance(each, bool) for each in values
    )
    return "number" if whole else "mono"


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)
