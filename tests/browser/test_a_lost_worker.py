"""A worker of a real cluster is killed by mouse; the job that ran there goes on, exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, expect

from browser.real_job import LONG, Edits, end_all, number, rows_out, succeeded
from browser.workshop import Site, Visit, site, visit
from e2e.drivers import Home
from holdfast.drill.waiting import wait

JOB = """\
import holdfast as hf


class Totals(hf.KeyedProcess):
    seen = hf.ValueState("bigint", default=0)
    total = hf.ValueState("bigint", default=0)
    output = "user string, seen bigint, total bigint"

    def process(self, edit, ctx):
        self.seen.value += 1
        self.total.value += edit.diff
        yield edit.user, self.seen.value, self.total.value


job = hf.Job("totals", checkpoint=hf.CheckpointConfig(interval="1 s"), parallelism=2)


@job.pipeline
def pipeline(flow):
    schema = "user string, diff bigint, ts timestamp"
    edits = flow.source("edits", hf.sources.FileLog("edits-log", schema=schema))
    totals = flow.key_by(edits, "user").process("totals", Totals())
    flow.sink("out", totals, hf.sinks.Files("out", format="parquet"))
"""
LOST = "worker-1"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Site, Edits]]:
    """A cluster of two workers, and the job on it."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "totals.py").write_text(JOB)
    home = Home(tmp_path, typed_in=folder)
    edits = Edits(folder)
    edits.send()
    try:
        home.json("cluster", "up", "--workers", "2", "--memory", "512m")
        with site(tmp_path / "home") as here, edits.flowing():
            home.json("run", "totals.py", "--master", "cluster", "--detach")
            yield here, edits
    finally:
        home.call("cluster", "down")
        end_all(tmp_path / "home")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_worker_is_killed_and_the_job_goes_on(
    browser: Browser, live: tuple[Site, Edits]
) -> None:
    here, edits = live
    with visit(browser, here) as seen:
        look(seen)
        kill(seen)
        watch(seen)
        edits.stop()
        wait(lambda: rows_out(edits.folder / "out") == edits.sent, "all edits in the output")
        stop(seen)
    require_exact(edits)


def look(seen: Visit) -> None:
    """Both workers have an executor, and the job commits epochs on them."""
    seen.go("/jobs/totals")
    expect(number(seen, "Epoch")).to_have_text(re.compile("^[1-9]"), timeout=LONG)
    seen.go("/cluster")
    for worker in (LOST, "worker-2"):
        row = seen.row(worker)
        expect(row.locator(".pill")).to_have_text("alive")
        expect(row.locator('[data-label="Executors"]')).to_have_text(
            re.compile(r"^process \d+$"), timeout=LONG
        )
    seen.picture("worker-1-alive")


def kill(seen: Visit) -> None:
    button = seen.row(LOST).get_by_role("button", name=f"Kill…: {LOST}")
    button.click()
    expect(seen.dialog).to_contain_text("SIGKILL")
    seen.dialog.get_by_role("button", name="Cancel").click()
    expect(seen.dialog).to_have_count(0)
    expect(seen.row(LOST).locator(".pill")).to_have_text("alive")
    button.click()
    seen.dialog.get_by_role("button", name=f"Kill {LOST}").click()
    expect(seen.dialog).to_have_count(0)
    expect(seen.page.get_by_text(f"{LOST} was killed")).to_be_visible()
    expect(seen.row(LOST).locator(".pill")).to_have_text("gone")
    expect(seen.row(LOST).locator('[data-label="Executors"]')).to_have_text("–")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(seen.row("worker-2").locator(".pill")).to_have_text("alive")
    seen.picture("worker-2-gone")


def watch(seen: Visit) -> None:
    """The loss is told on the job's page, and epochs go on in the same attempt."""
    epoch = number(seen.go("/jobs/totals"), "Epoch")
    expect(seen.row(" was lost ")).to_contain_text("1 executor left", timeout=LONG)
    before = int(epoch.inner_text().replace(",", ""))
    expect(epoch).not_to_have_text(f"{before:,}", timeout=LONG)
    wait(lambda: int(epoch.inner_text().replace(",", "")) >= before + 2, "two more epochs")
    expect(number(seen, "Attempt")).to_have_text("1")
    expect(seen.page.locator(".page-head .pill")).to_have_text("running")
    seen.picture("worker-3-goes-on")


def stop(seen: Visit) -> None:
    seen.button("Stop").click()
    seen.dialog.get_by_role("button", name="Stop", exact=True).click()
    succeeded(seen)
    expect(seen.page.locator(".page-head .pill")).to_have_text("finished")


def require_exact(edits: Edits) -> None:
    """Of every user each number once, and at the last one the sum of all edits."""
    query = f"""
        SELECT user, list(seen ORDER BY seen), arg_max(total, seen)
        FROM read_parquet('{edits.folder}/out/*.parquet') GROUP BY user
    """
    found = duckdb.connect().execute(query).fetchall()
    assert {user: numbers for user, numbers, _ in found} == {
        user: list(range(1, count + 1)) for user, count in edits.counts.items()
    }
    assert {user: total for user, _, total in found} == dict(edits.sums)
