"""Time of the same batch while the state grows."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from holdfast.bench import inputs, programs, report
from holdfast.bench.section import (
    GROUP_BY,
    HEAP_LIMIT,
    PROCESS,
    SMALL_BATCH,
    Result,
    Row,
    Section,
    Summary,
    Work,
)

_STATE_KEYS = (100_000, 1_000_000, 5_000_000)
_PRELOAD_BATCH = 500_000
_STATE_EPOCHS = 20
WARM_UP = 5


def _plan_state_size(work: Work) -> list[Row]:
    return [row for keys in key_counts(work) for row in _state_size_rows(work, keys)]


def _state_size_rows(work: Work, keys: int) -> list[Row]:
    folder, source = work.folder / "runs" / "state-size", key_space(work, keys)
    native = programs.plain(
        "group-by", folder / f"group-by-{keys}", source=source, files_per_epoch=SMALL_BATCH
    )
    ours = programs.holdfast(
        "bench-process",
        folder / f"process-{keys}",
        source=source,
        files_per_epoch=SMALL_BATCH,
        settings={"heap_limit": HEAP_LIMIT},
    )
    return [
        Row(
            name=name,
            program=program,
            batch=work.batch(SMALL_BATCH),
            keys=keys,
            source=source,
            skip_epochs=preload_epochs(work, keys) + WARM_UP,
        )
        for name, program in ((GROUP_BY, native), (PROCESS, ours))
    ]


def key_counts(work: Work) -> list[int]:
    return [work.scaled(keys, at_least=100) for keys in _STATE_KEYS]


def key_space(work: Work, keys: int) -> Path:
    return work.folder / "inputs" / f"keys-{keys}-{work.file_records}"


def preload_epochs(work: Work, keys: int) -> int:
    return ceil(keys / work.scaled(_PRELOAD_BATCH, at_least=100))


def prepare_key_spaces(work: Work) -> None:
    for keys in key_counts(work):
        inputs.key_space(
            key_space(work, keys),
            keys=keys,
            preload_epochs=preload_epochs(work, keys),
            epochs=_STATE_EPOCHS,
            file_records=work.file_records,
        )


def sized_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The batch times of each program by its number of keys."""
    rows = []
    for result in results:
        epochs = result.run.epochs[result.row.skip_epochs :] if result.run else []
        rows.append(
            result.common()
            | {
                "keys": result.row.keys,
                "median_batch_seconds": report.median_seconds(epochs),
                "longest_batch_seconds": report.longest_seconds(epochs),
            }
        )
    smallest = min(row["keys"] for row in rows)
    for row in rows:
        least = report.find(rows, "median_batch_seconds", name=row["name"], keys=smallest)
        row["growth"] = report.ratio(row["median_batch_seconds"], least)
    return rows


def _summarise_state_size(results: Sequence[Result]) -> Summary:
    rows = sized_rows(results)
    for row in rows:
        native = report.find(rows, "median_batch_seconds", name=GROUP_BY, keys=row["keys"])
        row["to_group_by"] = report.ratio(row["median_batch_seconds"], native)
    return {"rows": rows, "bars": []}


SECTION = Section(
    name="state-size",
    plan=_plan_state_size,
    prepare=prepare_key_spaces,
    summarise=_summarise_state_size,
)
