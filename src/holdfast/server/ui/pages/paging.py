"""Pages of a long list: newer and older, with the cursors that lead back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.server.ui.html import element, text
from holdfast.server.ui.widgets import Button


class Pager:
    """Knows the cursor of the page that is shown; `turned` is called when it is another."""

    def __init__(
        self,
        turned: Callable[[], Any],
        *,
        forward: str = "Older",
        back: str = "Newer",
    ) -> None:
        self._turned = turned
        self._trail: list[str] = []
        self._next: str | None = None
        with element("div", "pager") as self._bar:
            self._back = Button(back, self._go_back)
            self._forward = Button(forward, self._go_forward)
            self._said = text("span", "", "muted push")
        self.told(None, "")

    @property
    def cursor(self) -> str | None:
        return self._trail[-1] if self._trail else None

    @property
    def number(self) -> int:
        return len(self._trail) + 1

    def reset(self) -> None:
        self._trail.clear()

    def told(self, following: str | None, said: str) -> None:
        """What the page that was read says of the one behind it."""
        self._next = following
        self._bar.set_visibility(bool(following or self._trail))
        self._back.reason("" if self._trail else "This is the first page.")
        self._forward.reason("" if following else "There is no more.")
        if self._said.text != said:
            self._said.set_text(said)

    def _go_forward(self) -> Any:
        if self._next is None:
            return None
        self._trail.append(self._next)
        return self._turned()

    def _go_back(self) -> Any:
        self._trail.pop()
        return self._turned()
