"""The name that code goes by: of its own files, and of nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.control.app import code_version, load_job

APP = """
import holdfast as hf
import helper_of_{name}

job = hf.Job("balances")
"""


def written(folder: Path, name: str, helper: str) -> str:
    """The version of an app with a module beside it."""
    folder.mkdir()
    (folder / f"helper_of_{name}.py").write_text(helper)
    (folder / "unused.py").write_text(str(folder))
    (folder / "app.py").write_text(APP.format(name=name))
    load_job(folder / "app.py", None)
    return code_version(folder)


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_equal_code_has_equal_names(tmp_path: Path) -> None:
    first = written(tmp_path / "a", "a", "LIMIT = 1")
    sys.modules.pop("helper_of_a")
    assert written(tmp_path / "b", "a", "LIMIT = 1") == first
    assert len(first) == 12


def test_a_change_beside_the_file_is_another_version(tmp_path: Path) -> None:
    first = written(tmp_path / "a", "a", "LIMIT = 1")
    (tmp_path / "a" / "unused.py").write_text("other")
    assert code_version(tmp_path / "a") == first
    (tmp_path / "a" / "helper_of_a.py").write_text("LIMIT = 2")
    assert code_version(tmp_path / "a") != first


def test_a_job_without_a_folder_has_none() -> None:
    assert code_version(None) == ""
