"""Figures from what was measured: rates, ratios, and whether a bar is met. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Literal

from holdfast.bench.measure import Epoch, Measured
from holdfast.bench.programs import HEAP_BYTES
from holdfast.bench.rocksdb_memory import EVENT as ROCKSDB_EVENT

Events = Sequence[Mapping[str, Any]]
"""What a program has reported, in the order in which it came."""

_WARM_UP_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a figure has to reach."""

    what: str
    bar: float
    measured: float | None
    at_least: bool = True
    unit: Literal["times", "seconds"] = "times"

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.met:
            return "met"
        return f"missed by {abs(self.measured / self.bar - 1):.1%}".replace("%", " %")

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "bar": self.bar,
            "at_least": self.at_least,
            "unit": self.unit,
            "measured": self.measured,
            "met": self.met,
            "verdict": self.verdict,
        }


def steady(epochs: Sequence[Epoch]) -> Sequence[Epoch]:
    """Without the first fifth, in which the JVM compiles and the workers start."""
    return epochs[ceil(len(epochs) * _WARM_UP_SHARE) :]


def records_per_second(epochs: Sequence[Epoch]) -> float | None:
    """Over steady epochs, by the wall clock: pauses between the epochs count."""
    if not epochs:
        return None
    return sum(epoch.rows for epoch in epochs) / (epochs[-1].ended - epochs[0].started)


def median_seconds(epochs: Sequence[Epoch]) -> float | None:
    return median(epoch.seconds for epoch in epochs) if epochs else None


def longest_seconds(epochs: Sequence[Epoch]) -> float | None:
    return max((epoch.seconds for epoch in epochs), default=None)


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def find(rows: Sequence[Mapping[str, Any]], figure: str, **wanted: Any) -> float | None:
    """A figure of the row with these fields; None if that row failed."""
    for row in rows:
        if all(row[name] == value for name, value in wanted.items()):
            found: float | None = row.get(figure)
            return found
    return None


def last_state(events: Events) -> dict[str, int]:
    """Keys and bytes of all steps after the last epoch."""
    sizes = [event["state"].values() for event in events if event["event"] == "epoch"]
    return {
        figure: sum(size[figure] for size in (sizes[-1] if sizes else ()))
        for figure in ("rows", "bytes")
    }


def rows_beyond_input(events: Events) -> int:
    """How many rows were written that are not the answer to a record: those of timers."""
    return sum(
        event["output_rows"] - event["input_rows"]
        for event in events
        if event["event"] == "epoch"
    )


def peak_rocksdb(events: Events) -> int | None:
    """The most memory that RocksDB has said it holds, in bytes."""
    return max(
        (event["bytes"] for event in events if event["event"] == ROCKSDB_EVENT), default=None
    )


def beyond_heap(jvm: int) -> int | None:
    """What of a JVM's resident memory is not heap, if it holds its whole heap from the start.

    None where the memory of processes cannot be read.
    """
    return jvm - HEAP_BYTES if jvm else None


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """From the start of the process to the first committed epoch, in seconds."""

    total: float
    python: float
    """Interpreter, imports, registry: until the program asks for a session."""
    jvm: float
    planning: float
    query: float
    first_epoch: float
    first_epoch_planning: float
    warm_epoch: float | None
    """The second epoch, of the same size. What the first took longer went into starting
    Python workers, compiling and loading classes; Spark does not tell these apart."""


def cold_start(run: Measured) -> ColdStart | None:
    if not run.epochs or run.started_at is None:
        return None
    first, timings = run.epochs[0], run.timings
    return ColdStart(
        total=first.ended - run.spawned,
        python=run.started_at - timings["query"] - run.spawned,
        jvm=timings["jvm"],
        planning=timings["plan"] - timings["jvm"],
        query=timings["query"] - timings["plan"],
        first_epoch=first.seconds,
        first_epoch_planning=first.phases.get("plan", 0.0),
        warm_epoch=run.epochs[1].seconds if len(run.epochs) > 1 else None,
    )


def medians(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Of every field over several runs."""
    if not rows:
        return {}
    return {
        name: median(values)
        if (values := [value for row in rows if (value := row[name]) is not None])
        else None
        for name in rows[0]
    }
