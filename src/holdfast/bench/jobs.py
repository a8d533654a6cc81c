"""The holdfast jobs of the benchmark, run as a user runs them: `holdfast run jobs.py --job …`.

The folders come by environment variable; this file is loaded by path, in a process of its
own, and again by its name in the Python workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast.bench.programs import (
    EDITS_DDL,
    FILES_VARIABLE,
    KEYED_DDL,
    OUT_VARIABLE,
    PARTITIONS,
    SOURCE_VARIABLE,
)

if TYPE_CHECKING:
    from holdfast.job.flow import KeyedStream, Stream


class Totals(hf.KeyedProcess):
    """Running total per user, a record at a time."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[str, int]]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


class TotalsByColumn(hf.KeyedProcess):
    """The same with Arrow columns: sort by user, cumulate, add what the state says."""

    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process_batch(self, keys: Sequence[str], table: pa.Table, ctx: hf.Context) -> pa.Table:
        users = table["user"].combine_chunks().dictionary_encode()
        names, codes = users.dictionary.to_pylist(), users.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        diffs, codes = table["diff"].to_numpy()[order], codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        running = np.cumsum(diffs)
        running += (diffs[starts] - running[starts] + self.total.get_many(names))[codes]
        self.total.put_many(names, running[np.append(starts[1:], len(codes)) - 1].tolist())
        totals = np.empty_like(running)
        totals[order] = running
        return pa.table({"user": table["user"], "total": totals})


def _edits(flow: hf.Flow, schema: str) -> Stream:
    return flow.source(
        "edits",
        hf.sources.Files(
            os.environ[SOURCE_VARIABLE],
            format="parquet",
            schema=schema,
            max_files_per_epoch=int(os.environ[FILES_VARIABLE]),
        ),
    )


def _by_user(flow: hf.Flow) -> KeyedStream:
    return flow.key_by(_edits(flow, KEYED_DDL), "user")


process = hf.Job("bench-process", parallelism=PARTITIONS)
process_batch = hf.Job("bench-process-batch", parallelism=PARTITIONS)
aggregate = hf.Job("bench-aggregate", parallelism=PARTITIONS)
rolling = hf.Job("bench-rolling", parallelism=PARTITIONS)
files = hf.Job("bench-files", parallelism=PARTITIONS)


@process.pipeline
def _process(flow: hf.Flow) -> None:
    flow.sink("out", _by_user(flow).process("totals", Totals()), hf.sinks.Discard())


@process_batch.pipeline
def _process_batch(flow: hf.Flow) -> None:
    flow.sink("out", _by_user(flow).process("totals", TotalsByColumn()), hf.sinks.Discard())


@aggregate.pipeline
def _aggregate(flow: hf.Flow) -> None:
    from pyspark.sql import functions as f

    totals = _by_user(flow).aggregate("totals", total=f.sum("diff"))
    flow.sink("out", totals, hf.sinks.Discard())


@rolling.pipeline
def _rolling(flow: hf.Flow) -> None:
    from pyspark.sql import functions as f

    totals = _by_user(flow).rolling("totals", total=f.sum("diff"))
    flow.sink("out", totals, hf.sinks.Discard())


@files.pipeline
def _files(flow: hf.Flow) -> None:
    flow.sink("out", _edits(flow, EDITS_DDL), hf.sinks.Files(os.environ[OUT_VARIABLE]))
