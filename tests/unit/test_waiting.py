"""Input that a job has not read yet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.waiting import Waiting, waiting_files

NOW = 2_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the seconds 1000, 1010, … 1040."""
    made = tmp_path / "in put"
    made.mkdir()
    for number in range(5):
        file = made / f"{number}.json"
        file.touch()
        os.utime(file, (1000 + 10 * number, 1000 + 10 * number))
    (made / "_hidden").touch()
    return made


def checkpoint(path: Path, folder: Path, *, read: int, name: str = "edits") -> Path:
    """Of a job whose last epoch has read so many of the files."""
    for part, lines in {
        "offsets/0": ["v2", head(), f'{name}:{{"logOffset":0}}'],
        "commits/0": ["v2", "{}"],
        f"sources/{name}/0": ["v1", *(entry(folder, number) for number in range(read))],
    }.items():
        file = path / part
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    return path


def head() -> str:
    return json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}})


def entry(folder: Path, number: int) -> str:
    fields: dict[str, Any] = {
        "path": (folder / f"{number}.json").as_uri(),
        "timestamp": (1000 + 10 * number) * 1000,
        "batchId": 0,
    }
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (5, Waiting(files=0, seconds=0)),
        (4, Waiting(files=1, seconds=NOW - 1040)),
        (1, Waiting(files=4, seconds=NOW - 1010)),
    ],
)
def test_files_that_are_younger_than_what_was_read(
    tmp_path: Path, folder: Path, read: int, expected: Waiting
) -> None:
    made = checkpoint(tmp_path / "checkpoint", folder, read=read)
    assert waiting_files(made, NOW) == {"edits": expected}


def test_what_cannot_be_told_is_left_out(tmp_path: Path, folder: Path) -> None:
    assert waiting_files(tmp_path / "none", NOW) == {}
    made = checkpoint(tmp_path / "checkpoint", folder, read=2)
    (made / "sources" / "edits" / "0").write_text("v1\n{broken")
    assert waiting_files(made, NOW) == {}
    (made / "offsets" / "0").write_text("v2\nbroken")
    assert waiting_files(made, NOW) == {}
