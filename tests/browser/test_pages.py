"""Pages of a server with a past, in a real browser."""

from __future__ import annotations

import os
import socket
import subprocess
from datetime import datetime, timedelta

from playwright.sync_api import Route, expect

from browser.conftest import Visiting
from browser.history import History
from browser.places import SAVEPOINT
from browser.workshop import Site
from holdfast.control.registry import RunState
from holdfast.control.tracked.log import OperationLog
from holdfast.control.tracked.record import OperationWorker
from holdfast.server.access.roles import Role
from holdfast.storage.processes import started_at


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


def test_something_is_seen_before_the_scripts_have_come(looking: Visiting) -> None:
    with looking() as seen:
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        seen.page.route("**/quasar.umd.prod.js", hold)
        seen.page.goto(f"{seen.site.url}/", wait_until="commit")
        first = seen.page.locator("#first")
        expect(first.get_by_text("holdfast")).to_be_visible()
        expect(seen.page.locator(".page")).to_have_count(0)
        held[0].continue_()
        expect(seen.row("wiki-diffs")).to_be_visible()
        expect(first).to_be_hidden()


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


def test_a_dialog_can_be_reached_and_used_without_a_mouse(looking: Visiting) -> None:
    with looking() as seen:
        page = seen.go("/jobs/wiki-diffs").page
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Savepoint":
                break
        page.keyboard.press("Enter")
        label = seen.dialog.get_by_label("Label")
        expect(label).to_be_focused()
        page.keyboard.type("by hand")
        page.keyboard.press("Enter")
        # Of a job that never was, nothing can be saved: the error is shown as it is.
        trouble = seen.dialog.get_by_role("alert")
        expect(trouble.locator("strong")).to_have_text("NOTHING_TO_SAVE", timeout=60_000)
        expect(trouble.locator(".fix")).to_contain_text("take a savepoint once it has")
        page.keyboard.press("Escape")
        expect(seen.dialog).to_have_count(0)
        expect(seen.button("Savepoint")).to_be_focused()


def test_an_operation_that_hangs_is_cancelled(looking: Visiting, past: Site) -> None:
    log = OperationLog(past.service.backend.registry)
    operation, _ = log.add("wiki-diffs", "verify", {}, asked_by="operator", exclusive=False)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as hanging:
        worker = OperationWorker(
            pid=hanging.pid, started=started_at(hanging.pid), host=socket.gethostname()
        )
        handed = log.hand_out(operation)
        assert handed is not None and log.begin(operation.id, handed.tries, worker)
        with looking() as seen:
            seen.go("/operations")
            seen.page.get_by_role("button", name=operation.id).click()
            seen.button("Cancel…").click()
            seen.dialog.get_by_role("button", name="Cancel the operation").click()
            expect(seen.page.get_by_role("row", name=operation.id)).to_contain_text("cancelled")
            over = seen.page.get_by_role("button", name="It is over.")
            expect(over).to_have_attribute("aria-disabled", "true")
        assert hanging.wait(10) < 0


def test_times_are_in_the_zone_of_the_viewer(looking: Visiting, past: Site) -> None:
    taken = past.service.savepoints.get(SAVEPOINT).created
    for zone, hours in (("UTC", 0), ("Asia/Tokyo", 9)):
        with looking(zone=zone) as seen:
            seen.go(f"/savepoints?id={SAVEPOINT}")
            shown = seen.page.locator(".facts time").first
            expect(shown).to_contain_text(f"{taken + timedelta(hours=hours):%H:%M:%S}")
            said = shown.get_attribute("datetime")
            assert said is not None and datetime.fromisoformat(said) == taken


def test_colours_follow_the_system_until_somebody_chooses(looking: Visiting) -> None:
    with looking(dark=True) as seen:
        page, root = seen.go("/").page, seen.page.locator("html")
        expect(root).to_have_attribute("data-theme", "dark")
        page.get_by_role("button", name="Colours: as the system").click()
        expect(root).to_have_attribute("data-theme", "light")
        seen.go("/operations")
        expect(root).to_have_attribute("data-theme", "light")
        page.get_by_role("button", name="Colours: light").click()
        expect(root).to_have_attribute("data-theme", "dark")


def test_login_by_token_and_logout(looking: Visiting, past: Site) -> None:
    with looking(role=None) as seen:
        page = seen.page
        page.goto(f"{past.url}/operations")
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token").fill(past.tokens["viewer"])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        expect(page.locator(".who")).to_contain_text("viewer")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(f"{past.url}/login?code=old")
        expect(page.get_by_role("alert")).to_contain_text("Ask for a new one")


def test_a_session_that_is_over_changes_nothing(looking: Visiting, past: Site) -> None:
    """A page may have been open for longer than its session."""
    with looking() as seen:
        seen.go("/jobs/wiki-diffs")
        seen.button("Savepoint").click()
        expect(seen.dialog).to_be_visible()
        past.rotate(Role.OPERATOR)
        seen.dialog.get_by_role("button", name="Take savepoint").click()
        alert = seen.dialog.get_by_role("alert")
        expect(alert.locator("strong")).to_have_text("LOGIN_REQUIRED")
