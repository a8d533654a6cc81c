"""Buttons and fields. A button that does not work says why, and can be reached all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.events import GenericEventArguments

from holdfast.server.ui.widgets.base import Widget


class Button(Widget, component="button.js"):
    def __init__(
        self,
        label: str,
        press: Callable[[], Any] | None = None,
        *,
        look: str = "",
        reason: str = "",
    ) -> None:
        """`look` is empty, `main` or `danger`; `reason` is why it does not work."""
        super().__init__()
        self._reason = reason
        self.show(label=label, look=look, reason=reason, busy=False)
        if press is not None:
            self.on("press", lambda: None if self._reason else press())

    def reason(self, reason: str) -> None:
        self._reason = reason
        self.show(reason=reason)

    def label(self, label: str) -> None:
        self.show(label=label)

    def busy(self, busy: bool) -> None:
        self.show(busy=busy)


@dataclass(frozen=True)
class Option:
    value: str
    label: str
    hint: str = ""


class Field(Widget, component="field.js"):
    """Has the browser's value in `value`."""

    def __init__(
        self,
        label: str,
        value: Any = "",
        *,
        kind: str = "text",
        options: Sequence[Option] = (),
        hint: str = "",
        placeholder: str = "",
        suggestions: Sequence[str] = (),
        least: int | None = None,
        most: int | None = None,
        focus: bool = False,
        hide_label: bool = False,
        change: Callable[[], Any] | None = None,
        enter: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__()
        self.value = value
        self.show(
            label=label,
            value=value,
            kind=kind,
            hint=hint,
            placeholder=placeholder,
            list=list(suggestions),
            focus=focus,
            hide_label=hide_label,
        )
        if least is not None:
            self.show(least=least)
        if most is not None:
            self.show(most=most)
        self.options(options)

        def changed(event: GenericEventArguments) -> Any:
            self.value = event.args
            self._props["value"] = event.args  # it is shown already
            return change() if change is not None else None

        self.on("change", changed)
        if enter is not None:
            self.on("enter", lambda _: enter())

    def options(self, options: Sequence[Option]) -> None:
        self.show(options=[asdict(option) for option in options])

    def set(self, value: Any) -> None:
        self.value = value
        self.show(value=value)

    @property
    def text(self) -> str:
        return str(self.value).strip()

    @property
    def number(self) -> int | None:
        return int(self.text) if self.text.isdigit() else None
