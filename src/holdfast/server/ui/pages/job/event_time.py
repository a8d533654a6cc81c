"""Watermarks, late rows, and sources that hold the watermark back."""

from __future__ import annotations

from holdfast.server.ui.here import text_of
from holdfast.server.ui.html import element
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Column, Facts, Table

_SOURCES = (
    Column(name="source", label="Source", head=True),
    Column(name="watermark", label="Watermark"),
    Column(name="waited_for", label="Waited for"),
    Column(name="moved", label="Last had something new", kind="age"),
)
_LATE = (
    Column(name="step", label="Step", head=True),
    Column(name="all", label="Late rows, in all", kind="number"),
    Column(name="last", label="In the last epoch", kind="number"),
)


class EventTime(Tab):
    async def build(self) -> None:
        with panel("Watermark"):
            self._facts = Facts()
        with element("div", "columns"):
            with panel("Late rows", tight=True):
                self._late = Table("Late rows", _LATE, empty="No row has come too late.")
            with panel("Sources", tight=True):
                self._sources = Table(
                    "Sources and the watermark",
                    _SOURCES,
                    empty="No epoch has been committed yet.",
                )
        await self.read()

    async def read(self) -> None:
        found = await self.here.ask(self.here.service.history.watermarks, self.job)
        if found.watermark is None:
            none = "none: no step of the job uses event time, or nothing was read yet"
            self._facts.items([{"label": "Watermark", "value": none, "wide": True}])
        else:
            self._facts.items(
                [
                    {"label": "Watermark", "value": text_of(found.watermark), "kind": "time"},
                    {
                        "label": "Behind the last epoch",
                        "value": found.behind_seconds,
                        "kind": "seconds",
                    },
                    {
                        "label": "Late rows, in all",
                        "value": sum(found.late_rows.values()),
                        "kind": "number",
                    },
                ]
            )
        steps = dict.fromkeys([*found.late_rows, *found.late_in_last_epoch])
        self._late.rows(
            [
                {
                    "key": step,
                    "step": step,
                    "all": found.late_rows.get(step, 0),
                    "last": found.late_in_last_epoch.get(step, 0),
                }
                for step in steps
            ]
        )
        self._sources.rows(
            [
                {
                    "key": each.source,
                    "source": each.source,
                    "watermark": each.watermark,
                    "waited_for": _waiting(each.waited_for),
                    "moved": text_of(each.moved),
                }
                for each in found.sources
            ]
        )


def _waiting(waited_for: bool | None) -> str:
    if waited_for is None:
        return ""
    return "yes" if waited_for else "no, it is idle"
