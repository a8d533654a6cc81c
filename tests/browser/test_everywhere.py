"""What holds on every page: for those who cannot see, for phones, and against planted HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browser.conftest import Visiting
from browser.history import History
from browser.places import SAVEPOINT, places
from browser.workshop import PHONE, Site, Visit, site, visit
from holdfast.checkpoint.identity import JobDirectory
from holdfast.control.registry import RunState
from holdfast.errors import DataError
from holdfast.server.access.roles import Role

EVIL = '<script>window.hacked=1</script>"><img src=x onerror="window.hacked=1">${alert(1)}`'
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")


# -- accessibility --------------------------------------------------------------------


ALL_RULES = {"type": "tag", "values": list(RULES)}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
"""Contrast is all that changes with the colours."""


def findings(page: Page, rules: Any = ALL_RULES) -> list[str]:
    """What axe takes for serious or critical, in words."""
    options = {"resultTypes": ["violations"], "runOnly": rules}
    answer: Any = Axe().run(page, options=options).response
    return [
        f"{found['id']} ({found['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for found in answer["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"][:3]
    ]


def scanned_in_both_colours(seen: Visit) -> list[str]:
    found = []
    for dark in (False, True):
        seen.page.emulate_media(color_scheme="dark" if dark else "light")
        theme = "dark" if dark else "light"
        expect(seen.page.locator(f'html[data-theme="{theme}"]')).to_have_count(1)
        seen.page.evaluate(TWO_FRAMES)
        rules = CONTRAST if dark else ALL_RULES
        found += [f"{theme}: {each}" for each in findings(seen.page, rules)]
    return found


def test_no_page_has_a_serious_finding(looking: Visiting) -> None:
    found = {}
    with looking() as seen:
        for path in places("wiki-diffs", SAVEPOINT):
            seen.go(path)
            settled(seen)
            found[path] = scanned_in_both_colours(seen)
    assert {path: each for path, each in found.items() if each} == {}


def test_the_login_page_and_dialogs_have_no_serious_finding(looking: Visiting) -> None:
    with looking() as seen:
        seen.go("/jobs/wiki-diffs")
        for name in ("Stop", "Restore", "Savepoint", "Rescale", "Fork", "Upgrade"):
            seen.button(name).click()
            expect(seen.dialog).to_be_visible()
            assert scanned_in_both_colours(seen) == [], name
            seen.page.keyboard.press("Escape")
            expect(seen.dialog).to_have_count(0)
    with looking(role=None) as seen:
        seen.page.goto(f"{seen.site.url}/")
        expect(seen.page.get_by_label("Token")).to_be_visible()
        assert findings(seen.page) == []


# -- phones ---------------------------------------------------------------------------


def test_nothing_is_wider_than_a_phone(looking: Visiting) -> None:
    wide = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
    with looking(size=PHONE) as seen:
        for path in places("wiki-diffs", SAVEPOINT):
            seen.go(path)
            settled(seen)
            assert seen.page.evaluate(wide) <= 0, path
        seen.go("/")
        menu = seen.page.get_by_role("button", name="Menu")
        link = seen.page.get_by_role("link", name="Savepoints")
        expect(link).to_be_hidden()
        menu.click()
        seen.picture("phone-menu")
        link.click()
        expect(seen.page.get_by_role("heading", name="Savepoints")).to_be_visible()


# -- planted HTML ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A past with HTML wherever somebody could have written it."""
    home = tmp_path_factory.mktemp("planted") / "home"
    made = History(home)
    evil = DataError(EVIL, f"message {EVIL}", fix=f"fix {EVIL}", trace=f"trace {EVIL}")
    job = made.job(
        "planted",
        attempts=[evil],
        sources=(f"source {EVIL}",),
        steps={"balances": 3, f"step {EVIL}": 2},
        sinks=(f"sink {EVIL}",),
        late=1,
    )
    made.job("failed", RunState.FAILED)
    made.events(job, f"event {EVIL}")
    made.savepoint("planted", SAVEPOINT, {EVIL: 3}, label=f"label {EVIL}")
    made.operation("planted", "savepoint", error=evil, parameters={"label": EVIL})
    made.operation("planted", "plan", result={"sentence": EVIL, "beyond": [EVIL], "parts": []})
    directory = JobDirectory(made.settings.storage, "planted")
    directory.attempt_log(2).write_text(f"line {EVIL}\n" * 3)
    identity = directory.load()
    assert identity is not None
    directory.save(replace(identity, code=EVIL))
    try:
        with site(home) as here:
            yield here
    finally:
        made.close()


SEEN_AS_TEXT = {
    "/jobs/planted?tab=overview": ("step ", "event "),
    "/jobs/planted?tab=attempts": ("message ",),
    "/jobs/planted?tab=sources": ("source ", "sink "),
    "/jobs/planted?tab=logs": ("line ",),
    f"/savepoints?id={SAVEPOINT}": ("label ",),
}


def test_planted_html_is_shown_as_text(browser: Browser, planted: Site) -> None:
    with visit(browser, planted) as seen:
        for path in places("planted", SAVEPOINT):
            seen.go(path)
            settled(seen)
            for words in SEEN_AS_TEXT.get(path, ()):
                expect(seen.page.get_by_text(words + EVIL).first).to_be_visible()
            harmless(seen.page, path)
        seen.go("/jobs/planted?tab=attempts")
        seen.page.get_by_role("button", name="Details: attempt 1").click()
        expect(seen.page.get_by_text(f"trace {EVIL}")).to_be_visible()
        harmless(seen.page, "a trace")
        seen.go(f"/state?of={SAVEPOINT}")
        seen.page.get_by_role("tab", name="Browse").click()
        seen.button("Browse").click()
        expect(seen.page.get_by_role("cell", name=EVIL, exact=True)).to_be_visible()
        harmless(seen.page, "state")
        seen.go("/operations")
        for row in (0, 1):
            seen.page.locator("tbody th button").nth(row).click()
            expect(
                seen.page.get_by_role("heading", name=re.compile("^Operation "))
            ).to_be_visible()
            harmless(seen.page, "an operation")


def harmless(page: Page, where: str) -> None:
    assert page.evaluate("window.hacked === undefined"), where
    assert page.locator('img[src="x"]').count() == 0, where
    assert page.evaluate("!document.querySelector('#app script, body > img')"), where


def test_a_script_inside_of_a_page_needs_its_nonce(looking: Visiting) -> None:
    """What escaping would let through, the policy would still stop."""
    with looking() as seen:
        seen.go("/")
        policy = seen.page.request.get(f"{seen.site.url}/").headers["content-security-policy"]
        assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        seen.page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"hacked=1\">')"
        )
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("window.hacked === undefined")
        assert any("Content Security Policy" in each for each in seen.complaints)
        seen.complaints.clear()


# -- viewers --------------------------------------------------------------------------


def test_a_viewer_sees_everything_and_changes_nothing(looking: Visiting, past: Site) -> None:
    before = len(past.service.operations.page(limit=100).items)
    with looking(role=Role.VIEWER) as seen:
        seen.go("/")
        expect(seen.row("wiki-diffs")).to_be_visible()
        refused = seen.page.get_by_role("button", name=re.compile("^Start a job"))
        expect(refused).to_have_attribute("aria-disabled", "true")
        expect(refused).to_have_attribute("title", re.compile("viewer"))
        refused.click(force=True)
        seen.row("wiki-diffs").get_by_role("button", name=re.compile("Stop")).click(force=True)
        seen.go("/jobs/wiki-diffs")
        for name in ("Savepoint", "Rescale", "Restore", "Upgrade", "Fork", "Stop"):
            button = seen.page.get_by_role("button", name=re.compile(f"^{name}"))
            expect(button).to_have_attribute("title", re.compile("viewer"))
            button.click(force=True)
        seen.page.wait_for_timeout(300)
        expect(seen.dialog).to_have_count(0)
        seen.go(f"/savepoints?id={SAVEPOINT}")
        expect(seen.page.get_by_role("button", name=re.compile("^Delete"))).to_have_attribute(
            "aria-disabled", "true"
        )
        seen.go(f"/state?of={SAVEPOINT}")
        seen.page.get_by_label("Key").fill("Deniz")
        seen.button("Look up").click()
        expect(seen.page.get_by_role("cell", name="5,200")).to_be_visible()
    assert len(past.service.operations.page(limit=100).items) == before


def settled(seen: Visit) -> None:
    """What comes in a moment after the page has come."""
    seen.page.wait_for_load_state("networkidle")
