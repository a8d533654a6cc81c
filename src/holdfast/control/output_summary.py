"""A comparison of outputs in plain values: what `holdfast diff --json` prints, what REST
answers and what the pages show. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.control.output_diff import OutputDiff

MOST_SAMPLE_BYTES = 200_000
"""Of rows in the result of an operation: it is kept in the registry."""


def summary(found: OutputDiff) -> dict[str, Any]:
    from holdfast.savepoint.queries import plain

    jobs = [found.first.job, found.second.job]
    return {
        "jobs": [
            {
                "job": side.job,
                "timeline": side.timeline,
                "after": side.after,
                "epoch": side.epoch,
            }
            for side in (found.first, found.second)
        ],
        "same": found.same,
        "same_input": found.same_input,
        "sources": [
            {"uid": each.uid, "only_read_by": dict(zip(jobs, each.only, strict=True))}
            for each in found.inputs
        ],
        "sinks": [
            {
                "uid": each.uid,
                "same": each.same,
                "rows": dict(zip(jobs, each.rows, strict=True)),
                "both": each.both,
                "only": dict(zip(jobs, each.only, strict=True)),
                "only_columns": {
                    job: list(names) for job, names in zip(jobs, each.columns, strict=True)
                },
                "samples": [
                    {"job": sample.job, "row": plain(sample.row)} for sample in each.samples
                ],
            }
            for each in found.sinks
        ],
    }


def bounded(told: Mapping[str, Any], most: int = MOST_SAMPLE_BYTES) -> dict[str, Any]:
    """With as many samples as there is room for; whether all are there is said."""
    left, cut, sinks = most, False, []
    for sink in told["sinks"]:
        kept = []
        for sample in sink["samples"]:
            size = len(json.dumps(sample))
            if size > left:
                cut = True
                continue
            left -= size
            kept.append(sample)
        sinks.append({**sink, "samples": kept})
    return {**told, "sinks": sinks, "samples_cut": cut}


def input_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Whether both have read the same: else a difference may mean nothing."""
    for source in told["sources"]:
        read = source["only_read_by"]
        for job, number in read.items():
            if number:
                (other,) = (each for each in read if each != job)
                yield (
                    f"source {source['uid']}: {job} has read {number:,} "
                    f"file{'s' * (number != 1)} that {other} has not"
                )
    if not told["same_input"]:
        yield "They have not read the same: a difference may only mean that one is ahead."
    elif told["sources"]:
        yield "Both have read the same input."


def column_lines(told: Mapping[str, Any]) -> Iterator[str]:
    for sink in told["sinks"]:
        for job, names in sink["only_columns"].items():
            if names:
                yield (
                    f"sink {sink['uid']}: only {job} writes the columns {', '.join(names)}; "
                    "the others are compared"
                )
