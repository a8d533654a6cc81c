"""Plain elements. Text is always text: nothing that comes from data is read as HTML."""

from __future__ import annotations

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement


def element(tag: str, classes: str = "") -> ui.element:
    return ui.element(tag).classes(classes)


def text(tag: str, content: str, classes: str = "") -> TextElement:
    made = TextElement(tag=tag, text=content)
    made.classes(classes)
    return made


def svg(path: str, classes: str = "") -> ui.element:
    """A drawing of one line, for decoration."""
    with element("svg", classes) as drawing:
        drawing.props["viewBox"] = "0 0 24 24"
        drawing.props["aria-hidden"] = "true"
        ui.element("path").props["d"] = path
    return drawing
