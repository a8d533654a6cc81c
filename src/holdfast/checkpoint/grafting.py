"""Puts a checkpoint together for code whose steps lie elsewhere than those that wrote it.

Spark keeps state by the place of a step in the plan, and the settings of a query in its logs.
Here the copy of a savepoint, which nobody uses yet, is changed to fit the new code: steps that
are kept move to their new places, those that are new or had to be written anew come from a
checkpoint in which that code has run for one batch (`holdfast.engine.planting`), and the others
are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.copies import fsync_all, link, relocated_metadata, rewrite
from holdfast.checkpoint.spark_files import read_commit, read_start
from holdfast.faults import fault_point
from holdfast.storage.files import list_names, make_directory, remove_tree, storage_errors


@dataclass(frozen=True, kw_only=True)
class Graft:
    kept: Mapping[int, int]
    """Operators that stay: their number so far, and the new one."""
    planted: Collection[int]
    """Operators that come from the other checkpoint, where they have the right number."""
    sources: Collection[str]
    """Names of the sources that stay, as the log has them."""


def graft(checkpoint: Path, batch: int, other: Path, other_batch: int, plan: Graft) -> None:
    """Change `checkpoint`, of which `batch` is the last, and that nobody uses yet."""
    before = checkpoint / "state.before"
    with storage_errors(checkpoint):
        if (checkpoint / "state").exists():
            (checkpoint / "state").rename(before)
    make_directory(checkpoint / "state")
    ids = read_commit(checkpoint, batch).get("stateUniqueIds", {})
    planted_ids = read_commit(other, other_batch).get("stateUniqueIds", {})
    new_ids: dict[str, Any] = {}
    for old, new in plan.kept.items():
        with storage_errors(checkpoint):
            (before / str(old)).rename(checkpoint / "state" / str(new))
        _renumber(checkpoint, new)
        new_ids[str(new)] = ids[str(old)]
    fault_point("graft.moved")
    for number in plan.planted:
        _transplant(other / "state" / str(number), checkpoint, number, batch - other_batch)
        new_ids[str(number)] = planted_ids[str(number)]
    remove_tree(before)
    _edit_log(checkpoint / "commits" / str(batch), lambda head: _with_ids(head, new_ids))
    conf = read_start(other, other_batch).conf
    _edit_offsets(checkpoint / "offsets", batch, conf, plan.sources)
    _drop_sources(checkpoint / "sources", plan.sources)
    fsync_all(checkpoint)


def operator_numbers(checkpoint: Path) -> list[int]:
    return [int(name) for name in list_names(checkpoint / "state") if name.isdigit()]


def operator_name(checkpoint: Path, number: int) -> str:
    """What Spark calls the kind of an operator."""
    return str(_operator_info(_metadata(checkpoint, number)[-1])["operatorName"])


def rename_operator(checkpoint: Path, number: int, name: str) -> None:
    """Have Spark take an operator's state for that of another kind; in a copy of our own."""
    for path in _metadata(checkpoint, number):
        version, text = path.read_text(encoding="utf-8").split("\n", 1)
        content = json.loads(text)
        content["operatorInfo"]["operatorName"] = name
        rewrite(path, f"{version}\n{json.dumps(content, separators=(',', ':'))}".encode())


def _operator_info(path: Path) -> dict[str, Any]:
    with storage_errors(path):
        _, text = path.read_text(encoding="utf-8").split("\n", 1)
    return dict(json.loads(text)["operatorInfo"])


def _metadata(checkpoint: Path, number: int) -> list[Path]:
    """The files in which Spark describes an operator."""
    folder = checkpoint / "state" / str(number) / "_metadata"
    paths = [folder / "metadata"] if (folder / "metadata").exists() else []
    return paths + [folder / "v2" / name for name in list_names(folder / "v2")]


def _renumber(checkpoint: Path, number: int) -> None:
    """An operator's files say which one they belong to, and where they are."""
    for path in _metadata(checkpoint, number):
        rewrite(path, relocated_metadata(path, checkpoint, number))


def _transplant(source: Path, checkpoint: Path, number: int, later: int) -> None:
    """Link an operator's files; state becomes that of a version that is so much `later`."""
    target = checkpoint / "state" / str(number)
    for folder, _, names in os.walk(source):
        for name in names:
            path = Path(folder) / name
            if name.endswith(".crc"):
                continue  # of a file that may get another name
            renamed = _later(name, later) if name.endswith(".zip") else name
            link(path, target / path.relative_to(source).with_name(renamed))
    _renumber(checkpoint, number)


def _later(name: str, by: int) -> str:
    """`1_<id>.zip`: the version, and its id."""
    version, _, rest = name.partition("_")
    return f"{int(version) + by}_{rest}"


def _with_ids(head: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    return {**head, "stateUniqueIds": dict(sorted(ids.items()))}


def _edit_offsets(
    log: Path, batch: int, conf: Mapping[str, str], sources: Collection[str]
) -> None:
    """Leave out the other sources. Of one that is not in the last entry, Spark takes the
    position of the entry before."""

    def kept(line: str) -> bool:
        name, colon, _ = line.partition(":")
        return not colon or name in sources or line.startswith("{")

    before = log / str(batch - 1)
    if before.exists():
        _edit_log(before, lambda head: head, kept)
    _edit_log(log / str(batch), lambda head: {**head, "conf": dict(conf)}, kept)


def _drop_sources(folder: Path, sources: Collection[str]) -> None:
    for name in list_names(folder):
        if name not in sources and not name.isdigit():
            remove_tree(folder / name)


def _edit_log(path: Path, change: Any, keep: Any = lambda line: True) -> None:
    with storage_errors(path):
        version, head, *lines = path.read_text(encoding="utf-8").splitlines()
    changed = json.dumps(change(json.loads(head)), separators=(",", ":"))
    rewrite(path, "\n".join([version, changed, *filter(keep, lines)]).encode())
