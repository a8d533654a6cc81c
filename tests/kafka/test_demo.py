"""`holdfast demo --kafka`: the story on topics, and every row as it should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EDITS = 20_000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_on_kafka(tmp_path: Path, jars: str) -> None:
    place = tmp_path / "demo"
    ran = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "holdfast.cli.main", "demo", "--kafka"),
            *("--dir", str(place), "--edits", str(EDITS), "--seed", "7", "--json"),
        ],
        env=os.environ | {"HOLDFAST_KAFKA_JARS": jars, "HOLDFAST_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["ok"] is True
    assert [attempt["state"] for attempt in result["attempts"]] == [
        "FAILED",
        *["FINISHED"] * 3,
    ]
    assert all(row["equal"] for row in result["balances"] + result["checks"])
    checks = {check["what"]: check["found"] for check in result["checks"]}
    assert checks["output rows"] == EDITS
    again = checks["rows since the savepoint, and again after the rollback"]
    assert 0 < again < EDITS
    assert not (place / "kafka" / "broker.json").exists(), "its broker is gone"
