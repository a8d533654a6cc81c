"""The trunk of a job, and how an epoch of it is taken apart again.

A job becomes one streaming query, the *trunk*: from the sources to the last stateful steps.
What comes after it (stateless branches, side outputs, sinks) runs on each epoch's rows inside
foreachBatch. Where the trunk has several ends, their rows travel in one frame and are told
apart by the number of their *cut*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.engine.frames import StreamFrame, mark_root
from holdfast.engine.worker import unpacker
from holdfast.event_time.idleness import Watched
from holdfast.event_time.windowing import Windowing
from holdfast.event_time.windows import AlignedWindows
from holdfast.job.graph import JobGraph
from holdfast.sinks.base import Sink
from holdfast.state.plan import StepPlan
from holdfast.state.process import MAIN
from holdfast.state.schema import columns_ddl

_CUT = "__holdfast_cut"
_WINDOW = "__holdfast_window"


@dataclass(frozen=True)
class SinkPlan:
    """Where a sink's rows come from in an epoch."""

    uid: str
    sink: Sink
    root: str
    """The root it reads directly, or "" if user code lies between."""
    tag: str = ""
    """For a process step: which of its outputs."""


@dataclass(frozen=True)
class Trunk:
    """A planned job: the streaming frame and how to take an epoch of it apart."""

    frame: DataFrame
    output_mode: str
    rolling: bool
    native: bool
    cuts: tuple[str, ...]
    """Roots whose rows are in the frame; a frame with one cut has just its rows."""
    steps: Mapping[str, StepPlan]
    sinks: tuple[SinkPlan, ...]
    graph: JobGraph
    named_sources: bool
    reported_sources: tuple[str, ...]
    """Source uids in the order in which Spark reports their progress."""
    reported_natives: tuple[str, ...]
    """Uids of Spark's own stateful operators in the order in which it reports them."""
    watched: tuple[Watched, ...] = ()
    """The watermarks, in the order of their declaration."""
    carried: Mapping[str, str] = field(default_factory=dict)
    """Process step to the cut whose blocks hold its output."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Stateful steps by the number under which Spark keeps their state."""

    @property
    def moves_without_data(self) -> bool:
        """Whether Spark may run epochs without data, which let the last watermark take effect.

        With a step in processing time it would run one after the other without end.
        """
        return all(plan.time_mode != "ProcessingTime" for plan in self.steps.values())


def united(cuts: Mapping[str, DataFrame]) -> DataFrame:
    """All cuts as one frame: the cut's number, and its row in a column of its own."""
    if len(cuts) == 1:
        return next(iter(cuts.values()))
    tagged = [
        frame.select(
            f.lit(at).alias(_CUT),
            f.struct(*[f"`{name}`" for name in frame.columns]).alias(f"c{at}"),
        )
        for at, frame in enumerate(cuts.values())
    ]
    united = tagged[0]
    for frame in tagged[1:]:
        united = united.unionByName(frame, allowMissingColumns=True)
    return united


class EpochFrames:
    """An epoch's frame, taken apart by cut."""

    def __init__(self, trunk: Trunk, epoch: DataFrame) -> None:
        self._trunk, self._epoch = trunk, epoch

    def rows(self, cut: str) -> DataFrame:
        """The rows of a cut: user rows, or the blocks of process steps."""
        if len(self._trunk.cuts) == 1:
            return self._epoch
        at = self._trunk.cuts.index(cut)
        return self._epoch.where(f.col(_CUT) == at).select(f"c{at}.*")

    def step_blocks(self, uid: str) -> DataFrame:
        return self.rows(self._trunk.carried[uid])

    def step_rows(self, uid: str, tag: str) -> DataFrame:
        return blocks_to_rows(self.step_blocks(uid), self._trunk.steps[uid], tag)


def step_frame(plan: StepPlan, rows_of: Callable[[str], DataFrame]) -> StreamFrame:
    """The output of a process step as the user sees it."""

    def output(tag: str) -> StreamFrame:
        root = plan.uid if tag == MAIN else f"{plan.uid}/{tag}"
        return StreamFrame(mark_root(rows_of(tag), root), root=plan.uid, tag=tag)

    main = output(MAIN)
    main.__dict__["hf_sides"] = {
        tag: partial(output, tag) for tag in plan.outputs if tag != MAIN
    }
    return main


def blocks_to_rows(blocks: DataFrame, plan: StepPlan, tag: str) -> DataFrame:
    schema = plan.outputs[tag]
    return blocks.mapInArrow(unpacker(f"{plan.uid}/{tag}", schema), columns_ddl(schema))


def aggregated(frame: DataFrame, keys: tuple[str, ...], columns: dict[str, Any]) -> DataFrame:
    computed = [
        (getattr(f, value)(name) if isinstance(value, str) else value).alias(name)
        for name, value in columns.items()
    ]
    return frame.groupBy(*keys).agg(*computed)


def windows_aggregated(
    frame: DataFrame,
    keys: tuple[str, ...],
    columns: dict[str, Any],
    windowing: Windowing,
    event_time: str,
) -> DataFrame:
    """Spark groups by a window as by a column; here its ends become columns of their own."""
    windows = windowing.windows
    assert isinstance(windows, AlignedWindows)
    size, every, offset = (
        f"{length} microseconds" for length in (windows.size, windows.every, windows.offset)
    )
    window = f.window(event_time, size, every, offset).alias(_WINDOW)
    grouped = frame.groupBy(window, *keys)
    return grouped.agg(*[column.alias(name) for name, column in columns.items()]).select(
        *keys,
        f.col(f"{_WINDOW}.start").alias("window_start"),
        f.col(f"{_WINDOW}.end").alias("window_end"),
        *columns,
    )
