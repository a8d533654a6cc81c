"""200 jobs and 100,000 epochs: a page fetches what it shows, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import text

from browser.history import History
from browser.workshop import Site, site, visit
from holdfast.control import tables
from holdfast.control.registry import RunState
from holdfast.server.ui.pages import jobs
from holdfast.server.ui.pages.job import epochs

JOBS, EPOCHS = 200, 100_000
LONGEST = 6.0
"""Seconds until a page is there. On an idle machine it is a fraction of one; the tests share
theirs with others."""

MANY = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
    INSERT INTO epochs (job_id, epoch, attempt, status, record)
    SELECT job_id, n, attempt, status, json_set(record, '$.epoch', n)
    FROM numbers, epochs WHERE job_id = :job AND epoch = 0
"""
"""Copies of the first one: SQLite makes them faster than Python."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("large") / "home"
    made = History(home)
    first = made.job("job-000", RunState.FINISHED, epochs=1)
    with made.registry.database.write() as connection:
        connection.execute(
            tables.jobs.insert(),
            [
                {
                    "id": f"{number:08x}",
                    "name": f"job-{number:03d}",
                    "state": "FINISHED",
                    "spec": {**first.spec, "directory": f"/nowhere/job-{number:03d}"},
                    "created": made.now,
                    "updated": made.now - timedelta(days=1),
                }
                for number in range(1, JOBS)
            ],
        )
        connection.execute(text(MANY), {"job": first.id, "last": EPOCHS - 1})
    try:
        with site(home) as here:
            yield here
    finally:
        made.close()


def test_a_large_registry_is_paged(browser: Browser, large: Site) -> None:
    with visit(browser, large) as seen:
        rows = seen.page.locator("tbody tr")
        seen.go("/")  # the scripts, once
        assert shown_in(lambda: seen.go("/")) < LONGEST
        expect(rows).to_have_count(jobs.PER_PAGE)
        seen.button("Next").click()
        expect(seen.row("job-025")).to_be_visible()
        expect(rows).to_have_count(jobs.PER_PAGE)
        seen.button("Previous").click()
        expect(seen.row("job-000")).to_be_visible()
        seen.page.get_by_label("Name contains").fill("199")
        expect(rows).to_have_count(1)

        assert shown_in(lambda: seen.go("/jobs/job-000?tab=epochs")) < LONGEST
        newest = seen.page.get_by_role("rowheader", name=f"{EPOCHS - 1:,}", exact=True)
        expect(newest).to_be_visible()
        expect(rows).to_have_count(epochs.PER_PAGE)
        seen.button("Older").click()
        following = f"{EPOCHS - 1 - epochs.PER_PAGE:,}"
        expect(seen.page.get_by_role("rowheader", name=following, exact=True)).to_be_visible()


def shown_in(go: Callable[[], object]) -> float:
    begun = time.monotonic()
    go()
    return time.monotonic() - begun
