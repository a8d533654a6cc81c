"""Timers and late records under kill -9, on both backends: each session once, none missing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.drivers import Home
from spark.test_time import edits, sessions, split, write

APP = """
import holdfast as hf
from spark.timed import Sessions

job = hf.Job("sessions", parallelism=2, checkpoint=hf.CheckpointConfig(backend="{backend}"))


@job.pipeline
def pipeline(flow):
    rows = flow.source(
        "edits",
        hf.sources.Files(
            "in",
            format="json",
            schema="id bigint, user string, n bigint, ts timestamp",
            max_files_per_epoch=1,
        ),
    )
    rows = flow.watermark(rows, "ts", delay="30 s")
    step = flow.key_by(rows, "user").process("step", Sessions())
    flow.sink("out", step, hf.sinks.Files("out", format="json"))
    flow.sink("late", step.side("late"), hf.sinks.Files("late", format="json"))
"""
FAULTS = ["epoch.end=kill@3", "sink.after_commit_record=kill@4"]


def rows_in(folder: Path) -> list[dict[str, Any]]:
    lines = [path.read_text("utf-8").splitlines() for path in folder.glob("*.jsonl")]
    return [json.loads(line) for part in lines for line in part]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_timers_fire_exactly_once(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    home = Home(tmp_path)
    app = tmp_path / "app.py"
    app.write_text(APP.format(backend=backend))
    epochs = edits(600, late=0.05, seed=5)
    write(tmp_path / "in", epochs)
    for fault in FAULTS:
        with home.driver(app, "--available-now", faults=fault) as driver:
            assert driver.end() == -signal.SIGKILL
    with home.driver(app, "--available-now") as driver:
        assert driver.end() == 0
    on_time, late, watermark = split(epochs)
    found = Counter(
        (row["user"], moment(row["first"]), moment(row["last"]), row["edits"])
        for row in rows_in(tmp_path / "out")
    )
    assert found == sessions(on_time, watermark)
    assert Counter(row["id"] for row in rows_in(tmp_path / "late")) == Counter(
        row[0] for row in late
    )
    assert len(late) > 10 and sum(found.values()) > 20
