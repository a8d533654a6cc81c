"""The command `holdfast drill`, at the moments that only the JVM passes."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from holdfast.cli.main import main

DRILLS = ["driver-kill-m1", "driver-kill-m3", "driver-kill-m4"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_inside_a_commit_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: if the test is cut short, the drill still ends what it has started.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = main(["drill", *DRILLS, "--json"])
    results = json.loads(capsys.readouterr().out)
    assert [(each["drill"], each["reasons"]) for each in results] == [(n, []) for n in DRILLS]
    assert code == 0
    for each in results:
        assert len(each["fired"]) == 1
        assert each["exact"]
        assert [attempt["error"] for attempt in each["attempts"]] == ["DRIVER_DIED", None]
    assert not list(tmp_path.iterdir()), "a drill that passed leaves nothing"
