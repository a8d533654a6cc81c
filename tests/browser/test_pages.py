"""Pages of a server with a past, in a real browser."""

from __future__ import annotations

import os
import socket

from playwright.sync_api import expect

from browser.conftest import Visiting
from browser.history import History
from browser.workshop import Site
from holdfast.control.registry import RunState


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


def test_a_page_follows_a_job_that_fails_and_comes_back(looking: Visiting, past: Site) -> None:
    made = History(past.home)
    try:
        job = made.job("comes-back", RunState.FAILED, epochs=8)
        with looking() as seen:
            page = seen.go("/jobs/comes-back").page
            state, failure = page.locator(".page-head .pill"), page.locator(".notice .fix")
            expect(state).to_have_text("failed")
            expect(failure).to_contain_text("say what to do")
            expect(seen.button("Resume")).to_be_visible()
            made.registry.start_attempt(job.id, os.getpid(), socket.gethostname(), made.now, {})
            made.registry.set_state(job.id, RunState.RUNNING)
            expect(state).to_have_text("running")
            expect(failure).to_have_count(0)
            expect(seen.button("Resume")).to_be_hidden()
            page.get_by_role("tab", name="Attempts").click()
            page.get_by_role("button", name="Details: attempt 1").click()
            expect(failure).to_have_count(1)
    finally:
        made.close()
