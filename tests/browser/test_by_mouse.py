"""The whole story by mouse, with a real job: start it, watch it, kill it, save it, restore it
with another parallelism, and ask for a balance."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from browser.real_job import LONG, Edits, end_all, number, rows_out, succeeded
from browser.workshop import Site, Visit, site, visit
from holdfast.drill.waiting import wait

JOB = "wiki-diffs"
EXAMPLE = Path(__file__).parents[2] / "examples" / "wiki_diffs.py"


def prepared(folder: Path) -> Path:
    """The example, with a restart strategy, in a folder whose files may be started."""
    text = EXAMPLE.read_text()
    start = 'hf.Job("wiki-diffs", '
    assert start in text
    jobs = folder / "jobs"
    jobs.mkdir(parents=True)
    restart = 'restart=hf.FixedDelay(attempts=3, delay="1 s"), '
    # A busy machine has to catch up in the end.
    text = text.replace("max_segments_per_epoch=2", "max_segments_per_epoch=50")
    (jobs / EXAMPLE.name).write_text(text.replace(start, start + restart))
    return jobs


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Site, Edits]]:
    jobs = prepared(tmp_path)
    edits = Edits(jobs)
    edits.send()
    home = tmp_path / "home"
    try:
        with (
            site(home, HOLDFAST_SERVER_JOB_ROOTS=str(jobs)) as here,
            edits.flowing(),
        ):
            yield here, edits
    finally:
        end_all(home)


@pytest.mark.timeout(900)
def test_the_story(browser: Browser, live: tuple[Site, Edits]) -> None:
    here, edits = live
    with visit(browser, here) as seen:
        start(seen)
        watch(seen)
        kill(seen)
        savepoint(seen)
        restore(seen, parallelism=3)
        look_up(seen, edits)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_new_code_is_rehearsed_and_promoted(browser: Browser, live: tuple[Site, Edits]) -> None:
    """A fork with other code beside the job; then it is the job, and no edit is lost."""
    here, edits = live
    with visit(browser, here) as seen:
        start(seen)
        changed = edits.folder / "changed.py"
        changed.write_text((edits.folder / EXAMPLE.name).read_text() + "# Another version.\n")
        seen.go(f"/jobs/{JOB}")
        expect(number(seen, "Epoch")).to_have_text(re.compile(r"\d"), timeout=LONG)
        fork(seen, changed)
        promote(seen)
        look_up(seen, edits)
        assert seen.site.service.jobs.get(JOB).app == str(changed)


def fork(seen: Visit, code: Path) -> None:
    seen.button("Fork").click()
    go = planned(
        seen, "Fork", lambda: seen.dialog.get_by_label("Code").select_option(str(code))
    )
    go.click()
    succeeded(seen)


def promote(seen: Visit) -> None:
    seen.go(f"/jobs/{JOB}-fork")
    expect(seen.page.locator(".page-head .pill")).to_have_text("running", timeout=LONG)
    # A job is known as a fork once it has taken the state over.
    expect(seen.button("Promote")).to_be_visible(timeout=LONG)
    seen.button("Promote").click()
    planned(seen, "Promote", lambda: seen.dialog.get_by_label("Rewind").check()).click()
    succeeded(seen)
    expect(seen.page.locator(".page-head .pill")).to_have_text("finished", timeout=LONG)


def start(seen: Visit) -> None:
    seen.go("/")
    expect(seen.page.get_by_text("No job yet")).to_be_visible()
    seen.picture("story-1-empty")
    seen.button("Start a job").click()
    expect(seen.dialog.get_by_label("Job", exact=True)).to_have_value(JOB)
    seen.dialog.get_by_role("button", name="Start", exact=True).click()
    succeeded(seen)
    expect(seen.row(JOB)).to_be_visible()


def watch(seen: Visit) -> None:
    seen.page.get_by_role("link", name=JOB).click()
    expect(seen.page.get_by_text("running", exact=True).first).to_be_visible(timeout=LONG)
    seen.page.get_by_role("tab", name="Epochs").click()
    committed = seen.page.locator("tbody").get_by_text("committed")
    expect(committed.nth(3)).to_be_visible(timeout=LONG)
    seen.picture("story-2-epochs")
    seen.page.get_by_role("tab", name="Overview").click()
    expect(seen.page.locator(".node", has_text="balances")).to_contain_text("97 keys")
    seen.picture("story-3-graph")


def kill(seen: Visit) -> None:
    pid = seen.site.service.jobs.get(JOB).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    expect(number(seen, "Attempt")).to_have_text("2", timeout=LONG)
    expect(seen.page.locator(".page-head .pill")).to_have_text("running", timeout=LONG)
    seen.page.get_by_role("tab", name="Attempts").click()
    first = seen.row("DRIVER_")
    expect(first).to_be_visible()
    first.get_by_role("button", name="Details").click()
    expect(seen.page.locator(".notice .fix")).to_be_visible()
    seen.picture("story-4-attempts")


def savepoint(seen: Visit) -> None:
    seen.button("Savepoint").click()
    seen.dialog.get_by_label("Label").fill("before the restore")
    seen.dialog.get_by_role("button", name="Take savepoint").click()
    succeeded(seen)


def restore(seen: Visit, parallelism: int) -> None:
    seen.page.get_by_role("link", name="Savepoints").click()
    seen.page.get_by_role("button", name=re.compile("before the restore")).click()
    seen.picture("story-5-lineage")
    seen.button("Restore").click()
    given = str(parallelism)
    go = planned(seen, "Restore", lambda: seen.dialog.get_by_label("Parallelism").fill(given))
    expect(seen.dialog.get_by_text("restored").first).to_be_visible()
    seen.picture("story-6-plan")
    go.click()
    succeeded(seen)
    seen.go(f"/jobs/{JOB}")
    expect(number(seen, "Parallelism")).to_have_text(str(parallelism))
    expect(seen.page.locator(".page-head .pill")).to_have_text("running", timeout=LONG)


def planned(seen: Visit, name: str, choose: Callable[[], object]) -> Locator:
    """The button of a dialog, which works once its plan was looked at."""
    go = seen.dialog.get_by_role("button", name=re.compile(f"^{name}"))
    expect(go).to_have_attribute("aria-disabled", "true")
    choose()
    seen.dialog.get_by_role("button", name="Show the plan").click()
    expect(go).not_to_have_attribute("aria-disabled", "true", timeout=LONG)
    return go


def look_up(seen: Visit, edits: Edits) -> None:
    """All edits that were written until now are in the state that is looked into."""
    wanted = "user 1"
    edits.stop()
    output = edits.folder / "out" / "balances"
    wait(lambda: rows_out(output) == edits.sent, "all edits in the output")
    seen.go("/state")
    seen.page.get_by_label("State of").select_option(JOB)
    seen.button("Newest epoch").click()
    expect(seen.page.get_by_label("Table", exact=True).first).to_have_value(
        "balances", timeout=LONG
    )
    seen.page.get_by_label("Key").fill(wanted)
    seen.button("Look up").click()
    expect(seen.page.locator("tbody td.num")).to_have_text(f"{edits.sums[wanted]:,}")
    seen.picture("story-7-balance")
