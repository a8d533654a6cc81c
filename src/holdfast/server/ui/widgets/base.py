"""What all widgets have in common."""

from __future__ import annotations

from typing import Any

from nicegui import ui

LIBRARY = "holdfast"
"""The module that widgets import what they share from."""


class Widget(ui.element, esm={LIBRARY: "lib"}):
    """Sends a property only if it is another one."""

    def show(self, **props: Any) -> None:
        different = {
            name.replace("_", "-"): value
            for name, value in props.items()
            if self._props.get(name.replace("_", "-"), ...) != value
        }
        if different:
            self._props.update(different)
            self.update()
