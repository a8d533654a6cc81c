"""Savepoints of this format, as they were once taken: they must load for ever.

`python -m spark.test_golden_savepoints` (in tests/) makes them anew; that is right only when a
new format begins, under a new name and beside the old ones.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.clock import Clock, ManualClock, SystemClock
from holdfast.savepoint.archive import export_savepoint, import_savepoint
from spark.processes import RunningTotal
from spark.test_going_back import written
from spark.test_resume import SCHEMA
from spark.workplace import Pipeline, Workplace, running_totals

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("heap", "rocksdb", "canonical")
ROWS = [(f"user-{n % 5}", n * 3 - 20) for n in range(24)]
FIRST = 16


def totals(place: Workplace) -> Pipeline:
    def pipeline(flow: hf.Flow) -> None:
        log = hf.sources.FileLog(place.path / "log", SCHEMA)
        balances = flow.key_by(flow.source("edits", log), "user").process("sum", RunningTotal())
        unique = flow.source("more", hf.sources.FileLog(place.path / "more", SCHEMA))
        distinct = flow.stateful("distinct", unique.dropDuplicates(["user"]))
        flow.sink("out", balances, hf.sinks.Files(place.path / "out", "json"))
        flow.sink("distinct-out", distinct, hf.sinks.Files(place.path / "distinct", "json"))

    return pipeline


def feed_both(place: Workplace, rows: list[tuple[str, int]], clock: Clock) -> None:
    for name in ("log", "more"):
        path = place.path / name
        with hf.FileLogProducer(
            path, producer_id="golden", clock=clock, max_delay="1 h"
        ) as log:
            for user, diff in rows:
                log.send({"user": user, "diff": diff})


def feed_first(place: Workplace) -> None:
    """Segments of the same names as when the savepoints were taken."""
    feed_both(place, ROWS[:FIRST], ManualClock())


@pytest.mark.parametrize("name", NAMES)
def test_golden_savepoints_load(tmp_path: Path, name: str) -> None:
    loads(tmp_path, name, GOLDEN)


def loads(tmp_path: Path, name: str, folder: Path) -> None:
    place = Workplace(tmp_path, "rocksdb" if name == "rocksdb" else "heap")
    # The input lies elsewhere than when it was taken.
    feed_first(place)
    savepoint = import_savepoint(folder / f"{name}-1.tar.zst", place.savepoints)
    feed_both(place, ROWS[FIRST:], SystemClock())
    place.restore(totals(place), savepoint.manifest.id)
    truth = running_totals(ROWS)
    assert written(place.path / "out") == Counter(truth[FIRST:])
    assert not list((place.path / "distinct").glob("*.jsonl")), "all users were known"


def make(folder: Path, root: Path) -> None:
    """Under the Spark that is installed here; `root` is where the jobs run meanwhile."""
    for name in NAMES:
        shutil.rmtree(root, ignore_errors=True)
        place = Workplace(root, "rocksdb" if name == "rocksdb" else "heap")
        feed_first(place)
        place.run(totals(place))
        taken = place.take_canonical() if name == "canonical" else place.take()
        folder.mkdir(exist_ok=True)
        export_savepoint(taken, folder / f"{name}-1.tar.zst", force=True)
        shutil.rmtree(root)


if __name__ == "__main__":
    make(GOLDEN, Path("/tmp/holdfast-golden"))
