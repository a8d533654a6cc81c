"""Batch time and memory while the state on disk outgrows what RocksDB may take."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bench import programs, report
from holdfast.bench.report import Bar
from holdfast.bench.section import (
    PROCESS_ROCKSDB,
    SMALL_BATCH,
    Progress,
    Result,
    Row,
    Section,
    Summary,
    Work,
)
from holdfast.bench.state_size import (
    WARM_UP,
    key_counts,
    key_space,
    preload_epochs,
    prepare_key_spaces,
    sized_rows,
)

_MIB = 1024**2
_BOUND_MIB = 256
"""Half of the default: filters and indexes of five million keys fit, with some of the data."""
_LEAST_BOUND_MIB = 32
"""Write buffers come in pieces of a MiB; with less there would be nothing but flushes."""
_BOUND_BAR = 1.1
"""RocksDB may exceed it a little: what is in use is not thrown out, and it never fails."""


def _plan_rocksdb_size(work: Work) -> list[Row]:
    bound = work.scaled(_BOUND_MIB, at_least=_LEAST_BOUND_MIB) * _MIB
    return [_rocksdb_row(work, keys, bound) for keys in key_counts(work)]


def _rocksdb_row(work: Work, keys: int, bound: int) -> Row:
    source = key_space(work, keys)
    program = programs.holdfast(
        "bench-process-rocksdb",
        work.folder / "runs" / "rocksdb-size" / f"process-{keys}",
        source=source,
        files_per_epoch=SMALL_BATCH,
        settings={"rocksdb_memory": str(bound)},
        spark=programs.WHOLE_HEAP,
        watch_rocksdb=True,
    )
    return Row(
        name=PROCESS_ROCKSDB,
        program=program,
        batch=work.batch(SMALL_BATCH),
        keys=keys,
        source=source,
        skip_epochs=preload_epochs(work, keys) + WARM_UP,
        rocksdb_bound=bound,
    )


def _check_keys(work: Work, results: Sequence[Result], progress: Progress) -> dict[int, bool]:
    """Is every key in the state? As the job itself counts them."""
    return {
        at: report.last_state(result.run.events)["rows"] == result.row.keys
        for at, result in enumerate(results)
        if result.run
    }


def _summarise_rocksdb_size(results: Sequence[Result]) -> Summary:
    rows = sized_rows(results)
    for row, result in zip(rows, results, strict=True):
        run, bound = result.run, result.row.rocksdb_bound
        peak = report.peak_rocksdb(run.events) if run else None
        row |= {
            "rocksdb_bound": bound,
            "rocksdb_peak": peak,
            "to_bound": report.ratio(peak, bound),
            "state_bytes": report.last_state(run.events)["bytes"] if run else None,
            "jvm_beyond_heap": report.beyond_heap(run.memory.jvm) if run else None,
            "exact": result.exact,
        }
    bars = [
        Bar(
            what=f"memory of RocksDB against its bound, {row['keys']:,} keys",
            bar=_BOUND_BAR,
            measured=row["to_bound"],
            at_least=False,
        ).to_dict()
        for row in rows
    ]
    return {"rows": rows, "bars": bars}


SECTION = Section(
    name="rocksdb-size",
    plan=_plan_rocksdb_size,
    prepare=prepare_key_spaces,
    check=_check_keys,
    summarise=_summarise_rocksdb_size,
)
