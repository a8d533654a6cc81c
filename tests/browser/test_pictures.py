"""The pictures of the guide and the README: `make pictures` puts them into docs/images."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from browser.conftest import Visiting
from browser.places import SAVEPOINT
from browser.workshop import ARTIFACTS, PHONE, Visit

SIZE = {"width": 1200, "height": 680}


def test_pictures(looking: Visiting, tmp_path: Path) -> None:
    folder = Path(ARTIFACTS) if ARTIFACTS else tmp_path
    with looking(size=SIZE) as seen:
        seen.go("/")
        expect(seen.row("wiki-diffs")).to_be_visible()
        keep(seen, folder / "ui-jobs.png")
        seen.go("/jobs/wiki-diffs?tab=epochs")
        expect(seen.page.locator("canvas")).to_have_count(4)
        keep(seen, folder / "ui-epochs.png")
        seen.go(f"/savepoints?id={SAVEPOINT}")
        expect(seen.page.get_by_text("Started from it")).to_be_visible()
        keep(seen, folder / "ui-savepoints.png")
        seen.go(f"/state?of={SAVEPOINT}")
        seen.page.get_by_label("Key").fill("Deniz")
        seen.button("Look up").click()
        expect(seen.page.get_by_role("cell", name="5,200")).to_be_visible()
        keep(seen, folder / "ui-state.png")
    with looking(size=SIZE | {"height": 600}, dark=True) as seen:
        seen.go("/jobs/wiki-diffs")
        expect(seen.page.locator(".node", has_text="balances")).to_be_visible()
        keep(seen, folder / "ui-job.png")
    with looking(size=PHONE) as seen:
        seen.go("/jobs/wiki-diffs")
        expect(seen.page.locator(".node", has_text="edits")).to_be_visible()
        keep(seen, folder / "ui-phone.png")


def keep(seen: Visit, path: Path) -> None:
    seen.page.wait_for_load_state("networkidle")
    path.parent.mkdir(parents=True, exist_ok=True)
    seen.page.screenshot(path=path)
    assert path.stat().st_size > 10_000
