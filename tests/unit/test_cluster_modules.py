"""Which of the user's files go to the executors."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast.engine import modules
from holdfast.engine.modules import zip_modules
from holdfast.errors import EnvironmentProblem


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "app.py": "import helper",
        "helper.py": "from rules import limit",
        "__init__.py": "",
        "rules/__init__.py": "from rules.deep.values import limit",
        "rules/deep/__init__.py": "",
        "rules/deep/values.py": "limit = 7",
        "rules/data.json": "{}",
        "rules/__pycache__/old.pyc": "x",
        "rules/.hidden": "x",
        ".venv/__init__.py": "",
        "edits/1.jsonl": "{}",
        "notes.txt": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_modules_and_packages_and_nothing_else(folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(zip_modules(folder))) as archive:
        assert archive.namelist() == [
            *("app.py", "helper.py", "rules/__init__.py", "rules/data.json"),
            *("rules/deep/__init__.py", "rules/deep/values.py"),
        ]


def test_they_can_be_imported_from_the_zip(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "modules.zip"
    archive.write_bytes(zip_modules(folder))
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import helper; print(helper.limit)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "7\n"


def test_the_same_modules_give_the_same_bytes(folder: Path) -> None:
    before = zip_modules(folder)
    (folder / "app.py").touch()
    assert zip_modules(folder) == before
    (folder / "app.py").write_text("changed = True")
    assert zip_modules(folder) != before


def test_a_package_full_of_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "LARGEST_BYTES", 100)
    (folder / "rules" / "data.json").write_text("x" * 100)
    with pytest.raises(EnvironmentProblem, match="MODULES_TOO_LARGE"):
        zip_modules(folder)
