"""What is remembered of a start."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.control.launch import Launch
from holdfast.errors import NotFoundError, UsageError

APP = """\
from pathlib import Path

import holdfast as hf

job = hf.Job("wiki")
job.seen_from = Path.cwd()
"""


def test_a_start_is_repeated_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    other.mkdir()
    (first / "app.py").write_text(APP)
    monkeypatch.chdir(first)
    launch = Launch(app=Path("app.py"))
    spec = {"directory": str(tmp_path / "wiki"), "launch": launch.to_dict()}
    monkeypatch.chdir(other)
    again = Launch.from_spec("wiki", spec)
    assert again.directory == first
    assert vars(again.load())["seen_from"] == first
    assert Path.cwd() == other
    # What was remembered before there was a directory is run where the command is typed.
    stored = {key: value for key, value in launch.to_dict().items() if key != "directory"}
    assert Launch.from_spec("wiki", {**spec, "launch": stored}).directory == other


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    launch = Launch(app=app, directory=tmp_path / "gone")
    with pytest.raises(NotFoundError, match=r"WORKING_DIRECTORY_GONE") as refused:
        launch.load()
    assert str(tmp_path / "gone") in refused.value.message
    assert f"holdfast run {app}" in refused.value.fix


def test_a_source_begins_anew_once(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    launch = Launch(app=app, start_from="checkpoint:4", reset_sources=("edits", "rules"))
    assert launch.arguments()[1:] == [
        *("--from", "checkpoint:4", "--reset-source", "edits", "--reset-source", "rules")
    ]
    again = Launch.from_spec("job", {"launch": launch.to_dict(), "directory": str(tmp_path)})
    assert (again.start_from, again.arguments()) == (None, [str(app)])


def test_there_must_be_a_point_to_begin_anew_from(tmp_path: Path) -> None:
    launch = Launch(app=tmp_path / "app.py", reset_sources=("edits",))
    with pytest.raises(UsageError, match="NOTHING_TO_RESET"):
        launch.restore(hf.Job("job"), None)
