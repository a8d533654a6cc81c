"""Time of the same batch while the state grows."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from holdfast.bench import inputs, programs, report
from holdfast.bench.section import (
    GROUP_BY,
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
_STATE_WARM_UP = 5
_HEAP_LIMIT = "6 GiB"


def _plan_state_size(work: Work) -> list[Row]:
    return [row for keys in _key_counts(work) for row in _state_size_rows(work, keys)]


def _state_size_rows(work: Work, keys: int) -> list[Row]:
    folder, source = work.folder / "runs" / "state-size", _key_space(work, keys)
    native = programs.plain(
        "group-by", folder / f"group-by-{keys}", source=source, files_per_epoch=SMALL_BATCH
    )
    ours = programs.holdfast(
        "bench-process",
        folder / f"process-{keys}",
        source=source,
        files_per_epoch=SMALL_BATCH,
        heap_limit=_HEAP_LIMIT,
    )
    return [
        Row(
            name=name,
            program=program,
            batch=work.batch(SMALL_BATCH),
            keys=keys,
            source=source,
            skip_epochs=_preload_epochs(work, keys) + _STATE_WARM_UP,
        )
        for name, program in ((GROUP_BY, native), (PROCESS, ours))
    ]


def _key_counts(work: Work) -> list[int]:
    return [work.scaled(keys, at_least=100) for keys in _STATE_KEYS]


def _key_space(work: Work, keys: int) -> Path:
    return work.folder / "inputs" / f"keys-{keys}-{work.file_records}"


def _preload_epochs(work: Work, keys: int) -> int:
    return ceil(keys / work.scaled(_PRELOAD_BATCH, at_least=100))


def _prepare_state_size(work: Work) -> None:
    for keys in _key_counts(work):
        inputs.key_space(
            _key_space(work, keys),
            keys=keys,
            preload_epochs=_preload_epochs(work, keys),
            epochs=_STATE_EPOCHS,
            file_records=work.file_records,
        )


def _summarise_state_size(results: Sequence[Result]) -> Summary:
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
        median = row["median_batch_seconds"]
        least = report.find(rows, "median_batch_seconds", name=row["name"], keys=smallest)
        native = report.find(rows, "median_batch_seconds", name=GROUP_BY, keys=row["keys"])
        row["growth"] = report.ratio(median, least)
        row["to_group_by"] = report.ratio(median, native)
    return {"rows": rows, "bars": []}


SECTION = Section(
    name="state-size",
    plan=_plan_state_size,
    prepare=_prepare_state_size,
    summarise=_summarise_state_size,
)
