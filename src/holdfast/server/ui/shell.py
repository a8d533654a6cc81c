"""What surrounds every page: header, navigation, who is logged in; and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from holdfast.errors import HoldfastError
from holdfast.server.ui.here import Here, trouble_of
from holdfast.server.ui.html import element, svg, text
from holdfast.server.ui.widgets import Notice

PLACES = (
    ("Jobs", "/"),
    ("Savepoints", "/savepoints"),
    ("State", "/state"),
    ("Cluster", "/cluster"),
    ("Operations", "/operations"),
)
ANCHOR = "M12 7v14M12 3a2 2 0 1 0 .01 0M5 12H3a9 9 0 0 0 18 0h-2M8 11h8"
_SUN = (
    "M12 8a4 4 0 1 0 .01 0M12 2v2M12 20v2M2 12h2M20 12h2"
    "M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19"
)
_MOON = "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z"
_BOTH = "M12 3a9 9 0 1 0 .01 0M12 3v18M12 7a5 5 0 0 1 0 10"
_MENU = "M4 7h16M4 12h16M4 17h16"
_OUT = "M14 4h5v16h-5M3 12h11M10 8l4 4-4 4"


@contextmanager
def page(here: Here, title: str, *, place: str = "") -> Iterator[Notice]:
    """The frame of a page; yields the place for what goes wrong on it."""
    here.client.title = f"{title} · holdfast"
    _header(here, place)
    with element("div", "page") as main:
        notice = Notice()
        yield notice
    ui.skip_link("Skip to the content", target=main)


def _header(here: Here, place: str) -> None:
    with ui.header(add_scroll_padding=True).classes("top"), element("div", "top-row"):
        with element("a", "brand").props("href=/"):
            svg(ANCHOR)
            text("span", "holdfast")
        with element("nav").props('aria-label="Main"'):
            for label, address in PLACES:
                link = text("a", label)
                link.props["href"] = address
                if address == place:
                    link.props["aria-current"] = "page"
        with element("div", "who"):
            text("span", here.actor.name, "name")
            text("span", here.actor.role.value, "pill tone-calm")
            with icon_button("Colours: change", "data-theme-button"):
                svg(_BOTH, "theme-auto")
                svg(_SUN, "theme-light")
                svg(_MOON, "theme-dark")
            with icon_button("Log out", "data-logout"):
                svg(_OUT)
        with icon_button("Menu", "data-menu-button") as menu:
            menu.classes("menu-button")
            menu.props["aria-expanded"] = "false"
            svg(_MENU)


def icon_button(label: str, mark: str) -> ui.element:
    button = element("button", "icon-button")
    button.props["type"] = "button"
    button.props["aria-label"] = label
    button.props["title"] = label
    button.props[mark] = ""
    return button


def heading(title: str, *, crumb: tuple[str, str] | None = None) -> ui.element:
    """The head of a page; put its actions into what is returned."""
    with element("div", "page-head") as head:
        if crumb is not None:
            link = text("a", crumb[0], "crumb")
            link.props["href"] = crumb[1]
            text("span", "/", "crumb").props("aria-hidden=true")
        text("h1", title)
    return head


@contextmanager
def panel(title: str = "", *, tight: bool = False, level: str = "h2") -> Iterator[ui.element]:
    with element("section", "panel tight" if tight else "panel") as box:
        if title:
            with element("div", "panel-head"):
                text(level, title)
        yield box


def nothing(title: str, *lines: str, command: str = "") -> ui.element:
    """An empty state that says what to do."""
    with element("div", "nothing") as box:
        text("h2", title)
        for line in lines:
            text("p", line)
        if command:
            text("code", command, "command")
    return box


def went_wrong(here: Here, error: HoldfastError) -> None:
    """A whole page for an error: of a job that is not there, for example."""
    with page(here, error.name) as notice:
        heading("That did not work")
        notice.trouble(trouble_of(error))
        link = text("a", "All jobs")
        link.props["href"] = "/"


def tell(title: str, *, tone: str = "positive") -> None:
    """In passing: what was done."""
    ui.notify(title, type=tone, position="bottom-right", timeout=4000)  # type: ignore[arg-type]
