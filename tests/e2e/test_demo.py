"""`holdfast demo` as a user runs it: a kill -9 in the middle, and nothing differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from holdfast.checkpoint.identity import JobDirectory
from holdfast.storage.processes import session_members

EDITS = 20_000


@pytest.mark.timeout(400)
def test_the_demo_survives_its_kill(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")
    }
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "holdfast.cli.main", "demo"),
            *("--dir", str(place), "--edits", str(EDITS), "--seed", "7", "--json"),
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, complaints = process.communicate(timeout=360)
    finally:
        process.terminate()  # it takes its driver along
        process.wait(60)
    assert process.returncode == 0, complaints
    result = json.loads(said)
    assert result["ok"] is True
    assert result["edits"] == EDITS

    lost, restarted, upgraded, rolled_back = result["attempts"]
    assert (lost["number"], lost["error"]) == (1, "DRIVER_DIED")
    assert (restarted["number"], restarted["state"]) == (2, "FINISHED")
    assert (upgraded["number"], upgraded["state"]) == (3, "FINISHED")
    identity = JobDirectory(place / "jobs", "wiki-demo").load()
    assert identity is not None
    assert (rolled_back["number"], rolled_back["state"]) == (4, "FINISHED")
    assert (identity.parallelism, identity.timeline) == (3, "t2")
    assert [each.origin for each in identity.timelines[1:]] == [result["savepoint"]] * 2
    assert result["since_savepoint"]["changed"] > 0
    assert result["after_rollback"] == {"added": 0, "removed": 0, "changed": 0}

    kill = result["kill"]
    assert kill["in_flight"], "the kill came between two epochs and proves little"
    assert kill["epochs_before"] >= 5
    assert 0 < kill["edits_before"] < EDITS
    assert session_members(kill["pid"]) == []

    assert all(row["equal"] for row in result["balances"] + result["checks"])
    checks = {check["what"]: check["found"] for check in result["checks"]}
    assert checks["output rows"] == EDITS
    assert None in [row["user"] for row in result["balances"]]
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT count(kilobytes), count(*) FROM read_parquet(?, union_by_name = true)",
            [f"{place}/balances/*.parquet"],
        ).fetchone()
    assert rows is not None
    assert 0 < rows[0] < rows[1] == EDITS, "both versions have written"
