"""A real server as a process of its own, and a real browser that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from holdfast.server.access.guard import Access
from holdfast.server.access.roles import Role
from holdfast.server.app import access_for
from holdfast.server.service import Service
from holdfast.settings import load_settings

COMMAND = (sys.executable, "-P", "-m", "holdfast.cli.main")
ARTIFACTS = os.environ.get("TEST_PICTURES", "")
"""Where pictures are kept, if anywhere."""
PATIENCE = 30_000.0
"""Milliseconds that a page may take on a busy machine before a test gives up."""
expect.set_options(timeout=PATIENCE)
DESKTOP = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def clean_environment(home: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")
    }
    return kept | {"HOLDFAST_HOME": str(home)}


@dataclass
class Site:
    """A server that listens, and the cookies of those who may look."""

    home: Path
    url: str
    access: Access
    service: Service
    tokens: dict[str, str]
    pid: int

    def cookie(self, role: Role) -> Any:
        value = self.access.sessions.open(self.access.tokens.of_role(role))
        return {"name": self.access.cookie, "value": value, "url": self.url}

    def rotate(self, role: Role) -> None:
        """A new token; sessions of the old one are dead."""
        self.tokens[role.value] = self.access.tokens.rotate(role.value)
        os.kill(self.pid, signal.SIGHUP)


@contextmanager
def site(home: Path, **variables: str) -> Iterator[Site]:
    """`holdfast server` for a home, with a token of each role."""
    home.mkdir(parents=True, exist_ok=True)
    service = Service(load_settings(home=home))
    try:
        access = access_for(service)
        tokens = {role.value: access.tokens.create(role.value, role) for role in Role}
        with (home / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*COMMAND, "server", "--allow-root", "--port", "0", "--json"],
                cwd=home,
                env=clean_environment(home) | variables,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        try:
            told = process.stdout.readline()
            assert told, (home / "server.log").read_text()
            yield Site(home, json.loads(told)["url"], access, service, tokens, process.pid)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
    finally:
        service.close()


@dataclass
class Visit:
    """One browser window, and what it has noticed."""

    site: Site
    page: Page
    addresses: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> Visit:
        self.page.goto(self.site.url + path)
        self.page.locator(".page").wait_for()
        return self

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr").filter(has_text=text)

    def picture(self, name: str) -> None:
        """Kept if somebody wants them."""
        if ARTIFACTS:
            folder = Path(ARTIFACTS)
            folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=folder / f"{name}.png")

    def foreign(self) -> list[str]:
        """Requests that went to another origin."""
        own = urlsplit(self.site.url).netloc
        return [
            address
            for address in self.addresses
            if urlsplit(address).scheme not in ("data", "blob")
            and urlsplit(address).netloc != own
        ]


@contextmanager
def visit(
    browser: Browser,
    site: Site,
    *,
    role: Role | None = Role.OPERATOR,
    size: dict[str, int] | None = None,
    dark: bool = False,
    zone: str = "UTC",
) -> Iterator[Visit]:
    """Nothing may leave the origin, and no script may fail, whatever a test does."""
    context: BrowserContext = browser.new_context(
        viewport=size or DESKTOP,  # type: ignore[arg-type]
        color_scheme="dark" if dark else "light",
        timezone_id=zone,
        reduced_motion="reduce",
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE)
    if role is not None:
        context.add_cookies([site.cookie(role)])
    page = context.new_page()
    seen = Visit(site, page)
    page.on("request", lambda request: seen.addresses.append(request.url))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on(
        "console",
        lambda said: (
            seen.complaints.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    try:
        yield seen
    finally:
        context.close()
    assert seen.foreign() == []
    assert seen.complaints == []
