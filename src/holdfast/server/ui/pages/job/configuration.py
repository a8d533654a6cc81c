"""How the job was started, and every setting with its origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Column, Table

_JOB = (
    Column(name="name", label="Name", kind="mono", head=True),
    Column(name="value", label="Value", kind="mono"),
)
_SETTINGS = (
    Column(name="name", label="Setting", kind="mono", head=True),
    Column(name="value", label="Value", kind="mono"),
    Column(name="origin", label="Origin"),
)


class Configuration(Tab):
    async def build(self) -> None:
        with panel("Of the job", tight=True):
            self._job = Table("Configuration of the job", _JOB)
        with panel("Of the server's machine", tight=True):
            self._settings = Table("Settings", _SETTINGS)
        details = await self.here.ask(self.here.service.jobs.get, self.job)
        known = flat(details.spec) | flat(details.info, "attempt")
        self._job.rows(
            [{"key": name, "name": name, "value": value} for name, value in known.items()]
        )
        settings = await self.here.ask(self.here.service.machine.config)
        self._settings.rows(
            [
                {"key": each.key, "name": each.key, "value": each.value, "origin": each.origin}
                for each in settings
            ]
        )


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested names joined by a dot."""
    if not isinstance(value, Mapping):
        return {prefix: value if isinstance(value, str) else json.dumps(value, default=str)}
    found: dict[str, str] = {}
    for name, each in value.items():
        found |= flat(each, f"{prefix}.{name}" if prefix else str(name))
    return found
