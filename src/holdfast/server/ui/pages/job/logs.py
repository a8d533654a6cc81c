"""The log of an attempt as it is written."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from holdfast.errors import HoldfastError
from holdfast.server.ui.here import trouble_of
from holdfast.server.ui.html import element, text
from holdfast.server.ui.pages.job.tab import Tab
from holdfast.server.ui.shell import panel
from holdfast.server.ui.widgets import Field, LogView, Notice, Option

LINES = 400
LOOK_SECONDS = 1.0
_NEWEST = "newest"
_SUPERVISOR = "supervisor"


class Logs(Tab):
    async def build(self) -> None:
        attempts = await self.here.ask(self.here.service.history.attempts, self.job, limit=30)
        self._shown: list[str] = []
        with panel():
            with element("div", "bar"):
                self._which = Field(
                    "Log of",
                    _NEWEST,
                    kind="select",
                    change=self._other,
                    options=[
                        Option(_NEWEST, "the newest attempt"),
                        *(
                            Option(str(each.number), f"attempt {each.number}")
                            for each in attempts.items
                        ),
                        Option(_SUPERVISOR, "the supervisor"),
                    ],
                )
                self._follow = Field(
                    "Follow",
                    value=True,
                    kind="check",
                    change=lambda: self._log.follow(bool(self._follow.value)),
                )
                self._download = text("a", "Download", "btn push")
            self._notice = Notice()
            self._log = LogView([])
        await self._other()
        ui.timer(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        if self._follow.value:
            await self.read()

    async def _other(self) -> None:
        which = str(self._which.value)
        query = {_NEWEST: "", _SUPERVISOR: "?supervisor=true"}.get(which, f"?attempt={which}")
        self._download.props["href"] = f"/api/v1/jobs/{self.job}/logs/file{query}"
        self._shown = []
        self._log.replace([])
        await self.read()

    async def read(self) -> None:
        which = str(self._which.value)
        try:
            found = await self.here.ask(
                self.here.service.logs.tail,
                self.job,
                attempt=int(which) if which.isdigit() else None,
                supervisor=which == _SUPERVISOR,
                lines=LINES,
            )
        except HoldfastError as error:
            self._notice.trouble(trouble_of(error))
            return
        self._notice.trouble(None)
        added = behind(self._shown, found.lines)
        self._shown = found.lines
        if added is None:
            self._log.replace(found.lines)
        elif added:
            self._log.append(added)


def behind(before: Sequence[str], now: Sequence[str]) -> list[str] | None:
    """The lines that came since; None if nothing of what was shown is there any more."""
    if not before:
        return list(now)
    for kept in range(min(len(before), len(now)), 0, -1):
        if list(before[-kept:]) == list(now[:kept]):
            return list(now[kept:])
    return None
