"""A browser, and a server with a past; both once for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from playwright.sync_api import Browser, sync_playwright

from browser.history import showcase
from browser.workshop import Site, Visit, chromium, site, visit

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
NO_BROWSER = "there is no chromium; `apt-get install chromium`, or `make browser` as root"

Visiting = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NO_BROWSER)
        pytest.skip(NO_BROWSER)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield made
        made.close()


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Jobs that have a history, and run as far as anybody can tell."""
    home = tmp_path_factory.mktemp("past") / "home"
    made = showcase(home)
    try:
        with site(home) as here:
            yield here
    finally:
        made.close()


@pytest.fixture
def looking(browser: Browser, past: Site) -> Visiting:
    """Look at the server with a past."""
    return partial(visit, browser, past)
