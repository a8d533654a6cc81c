"""Where each source is, how far behind, and what the sinks have got."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.client import models
from holdfast.server.ui.here import text_of
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Column, Table

_SOURCES = (
    Column(name="source", label="Source", head=True),
    Column(name="lag", label="Lag, records", kind="number"),
    Column(name="epoch", label="As of epoch", kind="number"),
    Column(name="moved", label="Last had something new", kind="age"),
    Column(name="watermark", label="Watermark", low=True),
)
_POSITIONS = (
    Column(name="source", label="Source", head=True),
    Column(name="partition", label="Partition", kind="mono"),
    Column(name="position", label="Position", kind="mono"),
    Column(name="lag", label="Lag", kind="number"),
)
_SINKS = (
    Column(name="sink", label="Sink", head=True),
    Column(name="epoch", label="Last epoch", kind="number"),
    Column(name="rows", label="Rows, in all", kind="number"),
    Column(name="bytes", label="Written, in all", kind="bytes"),
    Column(name="files", label="Files", kind="number"),
)


class Sources(Tab):
    async def build(self) -> None:
        empty = "No epoch has been committed yet."
        with panel("Sources", tight=True):
            self._sources = Table("Sources", _SOURCES, empty=empty)
        with panel("Positions", tight=True):
            self._positions = Table("Positions by partition", _POSITIONS, empty=empty)
        with panel("Sinks", tight=True):
            self._sinks = Table("Sinks", _SINKS, empty=empty)
        await self.read()

    async def read(self) -> None:
        history = self.here.service.history
        sources = await self.here.ask(history.sources, self.job)
        sinks = await self.here.ask(history.sinks, self.job)
        self._sources.rows(
            [
                {
                    "key": each.source,
                    "source": each.source,
                    "lag": each.lag,
                    "epoch": each.epoch,
                    "moved": text_of(each.moved),
                    "watermark": each.watermark,
                }
                for each in sources
            ]
        )
        self._positions.rows([row for each in sources for row in positions_of(each)])
        self._sinks.rows([{"key": each.sink, **each.model_dump(mode="json")} for each in sinks])


def positions_of(source: models.SourceState) -> Iterator[dict[str, Any]]:
    """One row per partition, as far as the source has partitions."""
    lags = flat(source.lags or {})
    for name, value in flat(source.position).items():
        yield {
            "key": f"{source.source} {name}",
            "source": source.source,
            "partition": name,
            "position": value if isinstance(value, int | str) else json.dumps(value),
            "lag": lags.get(name),
        }


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested names joined by a slash: topic/partition."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, each in value.items():
        found |= flat(each, f"{prefix}/{name}" if prefix else str(name))
    return found
