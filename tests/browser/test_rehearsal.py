"""The page of a fork: its output beside that of its job, and its promotion by the plan."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.conftest import Visiting
from browser.history import History
from browser.test_everywhere import EVIL, harmless, scanned_in_both_colours
from browser.workshop import PHONE, Site, Visit
from server.rehearsed import rehearse

WIDE = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"


def test_a_fork_is_compared_and_its_promotion_is_planned(looking: Visiting, past: Site) -> None:
    made = History(past.home)
    try:
        evil = EVIL.replace("{", "{{").replace("}", "}}")
        rehearse(
            made.settings, made.registry, name="ledger", fork="ledger-v2", value=f"{{n}} {evil}"
        )
    finally:
        made.close()
    with looking() as seen:
        seen.go("/jobs/ledger")
        expect(seen.button("Fork")).to_be_visible()
        expect(seen.button("Promote")).to_be_hidden()
        seen.go("/jobs/ledger-v2")
        compare(seen)
        plan(seen)
    with looking(size=PHONE) as seen:
        seen.go("/jobs/ledger-v2")
        compare(seen)
        assert seen.page.evaluate(WIDE) <= 0
        seen.go("/operations")
        expect(seen.row("compare").first).to_contain_text("They have not written the same.")


def compare(seen: Visit) -> None:
    seen.button("Compare output").click()
    seen.dialog.get_by_role("button", name="Compare", exact=True).click()
    sinks = seen.dialog.get_by_role("region", name="Sinks, compared")
    expect(sinks.locator("tbody tr")).to_contain_text(["out"], timeout=60_000)
    expect(sinks.locator("tbody td")).to_have_text(["4", "2", "2"])
    expect(seen.dialog).to_contain_text("ledger-v2 has read 1 file that ledger has not")
    samples = seen.dialog.get_by_role("region", name="Rows of out that only one has")
    expect(samples.locator("tbody tr")).to_have_count(4)
    expect(samples.get_by_text(f"ledger-v2 {EVIL}").first).to_be_visible()
    harmless(seen.page, "a comparison")
    assert scanned_in_both_colours(seen) == []
    seen.picture("rehearsal-compared")
    seen.dialog.get_by_role("button", name="Close").click()
    expect(seen.dialog).to_have_count(0)


def plan(seen: Visit) -> None:
    """As far as it goes without Spark."""
    seen.button("Promote").click()
    go = seen.dialog.get_by_role("button", name=re.compile("^Promote"))
    expect(go).to_have_attribute("aria-disabled", "true")
    seen.dialog.get_by_role("button", name="Show the plan").click()
    expect(seen.dialog.get_by_text("Beyond that point")).to_be_visible(timeout=60_000)
    expect(go).not_to_have_attribute("aria-disabled", "true")
    assert scanned_in_both_colours(seen) == []
    seen.picture("rehearsal-plan")
    seen.dialog.get_by_label("Keep").check()
    expect(go).to_have_attribute("title", re.compile("look at the plan again"))
    seen.page.keyboard.press("Escape")
    expect(seen.dialog).to_have_count(0)
