"""Positions of a source of files, cut out of its log and put together again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.source_log import files_up_to, rebuilt
from holdfast.errors import CorruptionError


def entry(batch: int) -> dict[str, Any]:
    return {"path": f"file:///in/{batch}.json", "timestamp": 1000 + batch, "batchId": batch}


def write(log: Path, name: str, *batches: int) -> None:
    log.mkdir(exist_ok=True)
    lines = ["v1", *(json.dumps(entry(batch)) for batch in batches)]
    (log / name).write_text("\n".join(lines))


def spark_log(log: Path, batches: int, *, deleted_up_to: int = -1) -> Path:
    """As Spark writes it; what a `.compact` repeats may be deleted."""
    for batch in range(batches):
        if batch % 10 == 9:
            write(log, f"{batch}.compact", *range(batch + 1))
        elif batch > deleted_up_to:
            write(log, str(batch), batch)
    return log


def contents(files: dict[str, bytes]) -> dict[str, list[int]]:
    return {
        name: [json.loads(line)["batchId"] for line in data.decode().splitlines()[1:]]
        for name, data in files.items()
    }


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (0, ["0"]),
        (3, ["0", "1", "2", "3"]),
        (9, ["9.compact"]),
        (11, ["9.compact", "10", "11"]),
        (24, ["19.compact", "20", "21", "22", "23", "24"]),
    ],
)
def test_a_position_is_the_newest_compact_file_and_what_follows(
    tmp_path: Path, last: int, expected: list[str]
) -> None:
    log = spark_log(tmp_path / "log", 25)
    assert files_up_to(log, last) == expected
    made = rebuilt(log, last)
    assert list(made) == expected
    assert contents(made) == {
        name: list(range(10 * len(name)))[: int(name.split(".")[0]) + 1]
        if name.endswith("compact")
        else [int(name)]
        for name in expected
    }


def test_a_position_inside_a_compact_file_is_taken_out_of_it(tmp_path: Path) -> None:
    log = spark_log(tmp_path / "log", 25, deleted_up_to=19)
    assert files_up_to(log, 12) is None
    made = contents(rebuilt(log, 12))
    assert made == {"9.compact": list(range(10)), "10": [10], "11": [11], "12": [12]}


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for batch in (0, 2, 3):
        write(log, str(batch), batch)
    with pytest.raises(CorruptionError, match="batch 1") as caught:
        rebuilt(log, 3)
    assert caught.value.name == "SOURCE_LOG_INCOMPLETE"


def test_input_that_has_moved(tmp_path: Path) -> None:
    log = spark_log(tmp_path / "log", 2)
    made = rebuilt(log, 1, lambda path: path.replace("/in/", "/elsewhere/"))
    assert json.loads(made["1"].decode().splitlines()[1])["path"] == "file:///elsewhere/1.json"


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    log = spark_log(tmp_path / "log", 12, deleted_up_to=9)
    (log / "9.compact").write_text("v1\n{broken")
    with pytest.raises(CorruptionError, match=r"9\.compact"):
        rebuilt(log, 4)
