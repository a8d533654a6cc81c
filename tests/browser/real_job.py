"""A real job that a browser looks at: its edits, its output, and its end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import psutil
from playwright.sync_api import Locator, expect

import holdfast as hf
from browser.workshop import Visit

LONG = 240_000.0
"""Milliseconds for what starts Spark on a busy machine."""


class Edits:
    """Keeps writing edits, and the sums that the job must come to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = hf.FileLogProducer(folder / "edits-log", max_records=200)
        self.sums: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.sent = 0
        self._over = threading.Event()

    def send(self, count: int = 200) -> None:
        for n in range(self.sent, self.sent + count):
            user, diff = f"user {n * 31 % 97}", n * 37 % 1001 - 500
            self._log.send({"user": user, "diff": diff, "ts": datetime.now(UTC)})
            self.sums[user] += diff
            self.counts[user] += 1
        self.sent += count
        self._log.flush()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        def feed() -> None:
            while not self._over.wait(1.5):
                self.send()

        self._thread = threading.Thread(target=feed)
        self._thread.start()
        try:
            yield
        finally:
            self.stop()
            self._log.close()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def rows_out(folder: Path) -> int:
    """What a reader of the output counts now: one row per edit."""
    files = [str(path) for path in folder.glob("*.parquet")]
    try:
        query = "SELECT count(*) FROM read_parquet(?)"
        row = duckdb.connect().execute(query, [files]).fetchone() if files else None
    except duckdb.IOException:
        return -1  # a file was removed meanwhile
    return int(row[0]) if row else 0


def end_all(home: Path) -> None:
    """Nothing of the job and of operations is left, whatever has become of the test."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOLDFAST_HOME") == str(home):
                process.kill()


def succeeded(seen: Visit) -> None:
    expect(seen.dialog.locator(".operation .pill")).to_have_text("succeeded", timeout=LONG)
    seen.dialog.get_by_role("button", name="Close").click()
    expect(seen.dialog).to_have_count(0)


def number(seen: Visit, label: str) -> Locator:
    """One of the large numbers at the top of a job's page."""
    facts = seen.page.locator(".facts.big > div")
    return facts.filter(has=seen.page.get_by_text(label, exact=True)).locator("dd")
