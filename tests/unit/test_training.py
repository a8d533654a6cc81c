"""When an archive of Spark's classes is made, and that nothing is left of the attempt."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.config import RuntimeConfig
from holdfast.control import training
from holdfast.control.training import HEALTHY_SECONDS, Training, missing_archive
from holdfast.storage.processes import session_members


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(storage=tmp_path, cache=str(tmp_path / "cache"))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were started, each of which would take a minute."""
    found: list[int] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        found.append(process.pid)
        return process

    monkeypatch.setattr(training, "start_training", start)
    return found


def test_only_a_job_that_is_well_is_bothered_and_only_once(
    runtime: RuntimeConfig, begun: list[int], tmp_path: Path
) -> None:
    work = Training(lambda: runtime, tmp_path / "log")
    work.consider(0.0)
    work.consider(HEALTHY_SECONDS - 1)
    assert not begun
    for _ in range(3):
        work.consider(HEALTHY_SECONDS)
    assert len(begun) == 1
    work.end()
    assert not session_members(begun[0])


def test_an_archive_is_made_once(
    runtime: RuntimeConfig, begun: list[int], tmp_path: Path
) -> None:
    archive = missing_archive(runtime)
    assert archive is not None
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    work = Training(lambda: runtime, tmp_path / "log")
    work.consider(HEALTHY_SECONDS)
    work.end()
    assert not begun


def test_none_is_made_where_none_is_used(runtime: RuntimeConfig) -> None:
    assert missing_archive(replace(runtime, cache=None)) is None
    assert missing_archive(replace(runtime, master="spark://host:7077")) is None
