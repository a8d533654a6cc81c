"""Epochs: how long by phase, how much, incremental against full; as charts and as a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from holdfast.client import models
from holdfast.server.ui import theme
from holdfast.server.ui.here import text_of
from holdfast.server.ui.html import element
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.pages.paging import Pager
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Column, Table

CHARTED = 60
PER_PAGE = 25
COLUMNS = (
    Column(name="epoch", label="Epoch", kind="number", head=True),
    Column(name="status", label="Status", kind="state"),
    Column(name="attempt", label="Attempt", kind="number"),
    Column(name="started", label="Started", kind="time"),
    Column(name="seconds", label="Duration", kind="seconds"),
    Column(name="input_rows", label="Rows in", kind="number"),
    Column(name="output_rows", label="Rows out", kind="number"),
    Column(name="late_rows", label="Late", kind="number", low=True),
    Column(name="checkpoint_kind", label="Checkpoint", low=True),
    Column(name="checkpoint_bytes", label="Size", kind="bytes"),
    Column(name="state_rows", label="Keys", kind="number"),
    Column(name="state_bytes", label="State", kind="bytes", low=True),
)


class Epochs(Tab):
    async def build(self) -> None:
        with element("div", "columns"):
            with panel("Duration by phase, seconds"):
                self._durations = _chart("Seconds of each phase in the newest epochs")
            with panel("Checkpoint size, kB: incremental against full"):
                self._sizes = _chart("Bytes of the checkpoint of the newest epochs")
            with panel("Rows per epoch"):
                self._rows = _chart("Rows in and out in the newest epochs")
            with panel("State: keys and kB"):
                self._state = _chart("Keys and bytes of state after the newest epochs")
        with panel(tight=True):
            self._table = Table("Epochs", COLUMNS, empty="No epoch has been committed yet.")
            self._pager = Pager(self._turned)
        await self.read()

    async def read(self) -> None:
        epochs = self.here.service.history.epochs
        charted = await self.here.ask(epochs, self.job, limit=CHARTED)
        newest = [each for each in reversed(charted.items) if each.status == "COMMITTED"]
        _update(self._durations, durations(newest))
        _update(self._sizes, sizes(newest))
        _update(self._rows, rows(newest))
        _update(self._state, state(newest))
        await self._turned()

    async def _turned(self) -> None:
        found = await self.here.ask(
            self.here.service.history.epochs,
            self.job,
            cursor=self._pager.cursor,
            limit=PER_PAGE,
        )
        self._table.rows([row_of(each) for each in found.items])
        self._pager.told(found.next, f"Page {self._pager.number}")


def row_of(epoch: models.Epoch) -> dict[str, Any]:
    return {
        "key": f"{epoch.attempt}.{epoch.epoch}",
        "started": text_of(epoch.started),
        **epoch.model_dump(
            mode="json",
            include={
                "epoch",
                "status",
                "attempt",
                "seconds",
                "input_rows",
                "output_rows",
                "late_rows",
                "checkpoint_kind",
                "checkpoint_bytes",
                "state_rows",
                "state_bytes",
            },
        ),
    }


def _chart(label: str) -> ui.echart:
    made = ui.echart({}).classes("chart")
    made.props["role"] = "img"
    made.props["aria-label"] = label
    return made


def _update(chart: ui.echart, options: dict[str, Any]) -> None:
    if chart.options != options:
        chart.options.clear()
        chart.options.update(options)
        chart.update()


def _axes(epochs: Sequence[models.Epoch], *, values: int = 1) -> dict[str, Any]:
    return {"xAxis": _numbers(epochs), "yAxis": [{"type": "value", **theme.AXIS}] * values}


def _numbers(epochs: Sequence[models.Epoch], **more: Any) -> dict[str, Any]:
    names = [str(each.epoch) for each in epochs]
    return {"type": "category", "data": names, **theme.AXIS, **more}


def durations(epochs: Sequence[models.Epoch]) -> dict[str, Any]:
    """Stacked, so that an epoch is as high as it took long."""
    parts = [apart(each.phases) for each in epochs]
    phases = list(dict.fromkeys(phase for each in parts for phase in each))
    return theme.chart(
        **_axes(epochs),
        series=[
            {
                "type": "bar",
                "name": phase,
                "stack": "phases",
                "barCategoryGap": "20%",
                "data": [round(each.get(phase, 0.0), 3) for each in parts],
            }
            for phase in phases
        ],
    )


def apart(phases: Mapping[str, float]) -> dict[str, float]:
    """Phases beside one another: what is a part of `execute` is taken out of it. `load` is left
    out, for it adds up what partitions did at the same time."""
    inner = sum(phases.get(name, 0.0) for name in ("sinks", "workers"))
    found = {name: spent for name, spent in phases.items() if name != "load"}
    if "execute" in found:
        found["execute"] = max(0.0, found["execute"] - inner)
    return found


def sizes(epochs: Sequence[models.Epoch]) -> dict[str, Any]:
    """Side by side, each on a scale of its own: a full one may be a hundred times as large."""
    kinds = (("incremental", theme.INCREMENTAL), ("full", theme.FULL))
    of_kind = [[each for each in epochs if each.checkpoint_kind == kind] for kind, _ in kinds]
    shared = {"top": 38, "bottom": 6, "containLabel": True}
    return theme.chart(
        grid=[{"left": 8, "right": "52%", **shared}, {"left": "52%", "right": 12, **shared}],
        xAxis=[_numbers(found, gridIndex=at) for at, found in enumerate(of_kind)],
        yAxis=[{"type": "value", "gridIndex": at, **theme.AXIS} for at in range(2)],
        series=[
            {
                "type": "bar",
                "name": kind,
                "xAxisIndex": at,
                "yAxisIndex": at,
                "itemStyle": {"color": colour},
                "barCategoryGap": "20%",
                "barMaxWidth": 28,
                "data": [round(each.checkpoint_bytes / 1000, 1) for each in of_kind[at]],
            }
            for at, (kind, colour) in enumerate(kinds)
        ],
    )


def rows(epochs: Sequence[models.Epoch]) -> dict[str, Any]:
    return theme.chart(
        **_axes(epochs),
        series=[
            _line("in", [each.input_rows for each in epochs]),
            _line("out", [each.output_rows for each in epochs]),
        ],
    )


def state(epochs: Sequence[models.Epoch]) -> dict[str, Any]:
    return theme.chart(
        **_axes(epochs, values=2),
        series=[
            _line("keys", [each.state_rows for each in epochs]),
            _line("kB", [round(each.state_bytes / 1000, 1) for each in epochs], axis=1),
        ],
    )


def _line(name: str, data: list[Any], *, axis: int = 0) -> dict[str, Any]:
    return {
        "type": "line",
        "name": name,
        "yAxisIndex": axis,
        "showSymbol": False,
        "lineStyle": {"width": 1.8},
        "data": data,
    }
