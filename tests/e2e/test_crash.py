"""kill -9 at every step of a commit and at random moments: each edit exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from e2e.drivers import Home
from holdfast.demo.place import JOB, JOB_FILE
from holdfast.demo.proof import prove
from holdfast.drill.edits import Edits
from holdfast.drill.visible import half_visible
from holdfast.faults import fired_points
from holdfast.storage.file_sink_log import PRIVATE_DIRECTORY

DECISIVE = [
    "sink.before_staging=kill@1",
    "sink.after_commit_record=kill@1",
    "sink.mid_publication=kill@2",
]
OTHERS = [
    "epoch.start=kill@2",
    "sink.before_commit_record=kill@2",
    "sink.after_publication=kill@1",
    "epoch.end=kill@1",
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("points", "kills"), [(DECISIVE, 0), pytest.param(OTHERS, 3, marks=pytest.mark.long)]
)
def test_every_step_of_the_commit(tmp_path: Path, points: list[str], kills: int) -> None:
    """And `kills` at random moments."""
    home = Home(tmp_path)
    edits = Edits(home.path / "edits")
    for fault in points:
        edits.send(10)  # two epochs
        with home.driver(JOB_FILE, faults=fault) as driver:
            assert driver.end() == -signal.SIGKILL
        assert fired_points(home.faults_log)[-1] == fault.split("=")[0]
        assert half_visible(home.path / "balances") == ()
    assert len(fired_points(home.faults_log)) == len(points)

    seed = random.randrange(10**6)
    print(f"random kills with seed {seed}")
    draw = random.Random(seed)
    for _ in range(kills):
        edits.send(10)
        with home.driver(JOB_FILE) as driver:
            driver.wait_for_start()
            time.sleep(draw.uniform(0, 6))  # the moment is the test's input, not a wait
            os.killpg(driver.process.pid, signal.SIGKILL)
        assert half_visible(home.path / "balances") == ()

    with home.driver(JOB_FILE, "--available-now") as driver:
        assert driver.end() == 0
    proof = prove(home.path / "edits", home.path / "balances", edits.sent)
    assert proof.holds, [check for check in proof.checks if not check.equal]
    attempts = home.json("attempts", JOB)
    killed = len(points) + kills
    assert [each["state"] for each in attempts] == ["FAILED"] * killed + ["FINISHED"]
    assert {attempt["error"]["name"] for attempt in attempts[:-1]} == {"ATTEMPT_LOST"}
    committed = [
        epoch["epoch"]
        for epoch in home.json("checkpoints", JOB)
        if epoch["status"] == "COMMITTED"
    ]
    # The history has each epoch committed once, whatever died with the reports.
    assert committed == list(range(len(committed)))
    assert list((home.path / "balances" / PRIVATE_DIRECTORY).glob("*/*/staging/*")) == []
