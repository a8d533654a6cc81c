"""The command `holdfast drill`: at moments that only the JVM passes, and in operations."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main

IN_A_COMMIT = ["driver-kill-m1", "driver-kill-m3", "driver-kill-m4"]
IN_AN_OPERATION = ["command-kill-m7", "driver-zombie-m8"]


def passes(
    names: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """The results; in this process: if the test is cut short, what was started is ended."""
    code = main(["drill", *names, "--json"])
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [(each["drill"], each["reasons"]) for each in results] == [(n, []) for n in names]
    assert code == 0
    for each in results:
        assert len(each["fired"]) == 1
        assert each["exact"]
    assert not list(folder.iterdir()), "a drill that passed leaves nothing"
    return results


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_inside_a_commit_loses_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in passes(IN_A_COMMIT, folder, capsys):
        assert [attempt["error"] for attempt in each["attempts"]] == ["DRIVER_DIED", None]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_operation_that_is_struck_is_not_half_done(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, zombie = passes(IN_AN_OPERATION, folder, capsys)
    assert [each["error"] for each in zombie["attempts"]] == [None, "FENCED", None]
