"""Pages of a server with a past, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from browser.conftest import Visiting


def test_jobs_can_be_seen_filtered_and_opened(looking: Visiting) -> None:
    with looking() as seen:
        page = seen.go("/").page
        expect(seen.row("wiki-diffs").get_by_text("running")).to_be_visible()
        expect(seen.row("orders-dedup").get_by_text("failed")).to_be_visible()
        page.get_by_label("Name contains").fill("wiki")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="wiki-diffs").click()
        expect(page.get_by_role("heading", name="wiki-diffs")).to_be_visible()
        page.get_by_role("tab", name="Epochs").click()
        expect(page.get_by_role("rowheader", name="59", exact=True)).to_be_visible()
        expect(page.locator("canvas")).to_have_count(4)
        seen.button("Older").click()
        expect(page.get_by_role("rowheader", name="34", exact=True)).to_be_visible()
