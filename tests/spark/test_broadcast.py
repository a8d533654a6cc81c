"""Broadcast state in a job: its rules change while it runs."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import JobDefinitionError
from spark.processes import RunningTotal
from spark.timed import Flag
from spark.workplace import Memory, Workplace

SCHEMA = "id bigint, user string, n bigint"
RULES = "name string, limit bigint"
EPOCHS = [[(e * 100 + i, f"user-{i % 17}", i) for i in range(100)] for e in range(8)]
CHANGES: dict[int, list[tuple[str, int | None]]] = {
    0: [("other", 1)],
    2: [("bytes", 50)],
    5: [("bytes", 10), ("bytes", 90)],
    7: [("bytes", None)],
}
"""Rules by the epoch in which they arrive; the same file may hold several."""


def write(folder: Path, names: str, parts: list[list[tuple[Any, ...]]], first: int) -> None:
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(parts, first):
        hidden = folder / f".{number:04}"
        lines = [json.dumps(dict(zip(names.split(), row, strict=True))) for row in rows]
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1_700_000_000 + number,) * 2)
        hidden.rename(folder / f"{number:04}.json")


def truth() -> Counter[tuple[Any, ...]]:
    limits: dict[str, int | None] = {}
    flagged: Counter[str] = Counter()
    rows: Counter[tuple[Any, ...]] = Counter()
    for epoch, records in enumerate(EPOCHS):
        limits.update(CHANGES.get(epoch, []))
        limit = limits.get("bytes")
        for number, user, n in records:
            flagged[user] += limit is not None and n > limit
            rows[number, limit, flagged[user]] += 1
    return rows


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
def test_rules_change_at_a_known_record(
    place: Workplace, memory: Memory, parallelism: int
) -> None:
    out, rows = memory("out")

    def files(folder: str, schema: str) -> hf.sources.Files:
        return hf.sources.Files(
            place.path / folder, format="json", schema=schema, max_files_per_epoch=1
        )

    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", files("edits", SCHEMA))
        rules = flow.source("rules", files("rules", RULES))
        step = flow.key_by(edits, "user").process("flag", Flag(), broadcast=rules)
        flow.sink("out", step, out)

    # One file of each per epoch; half of it before a restart.
    for first in (0, 4):
        epochs = range(first, first + 4)
        write(place.path / "edits", "id user n", [EPOCHS[e] for e in epochs], first)
        write(place.path / "rules", "name limit", [CHANGES.get(e, []) for e in epochs], first)
        place.run(pipeline, parallelism=parallelism)
    assert Counter(rows()) == truth()


def test_broadcast_of_a_step_is_refused(place: Workplace, memory: Memory) -> None:
    out, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        rows = flow.source("edits", hf.sources.Collection([], "user string, diff bigint"))
        totals = flow.key_by(rows, "user").process("totals", RunningTotal())
        step = flow.key_by(rows, "user").process("flag", Flag(), broadcast=totals)
        flow.sink("out", step, out)

    with pytest.raises(JobDefinitionError, match="NOT_SUPPORTED"):
        place.run(pipeline)
