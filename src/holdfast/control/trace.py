"""What a pipeline declares, found out without Spark.

The pipeline function runs with a planner behind its Flow that only takes notes. Between the
steps of a flow there may be any DataFrame operation: the frames take them all, and remember
what still counts afterwards, such as a watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from holdfast.control.stand_in import (
    Anything,
    column,
    is_frame_method,
    pyspark_loaded,
    without_spark,
)
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.event_time.build import event_time_missing
from holdfast.event_time.process import WindowProcess, check_window_process
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.job.flow import Flow
from holdfast.job.graph import JobGraph, user_line
from holdfast.job.job import Job
from holdfast.sinks.base import Sink
from holdfast.sources.base import BAD_SIDE, Source
from holdfast.state.late import LATE
from holdfast.state.plan import (
    LatePolicy,
    check_broadcast,
    check_process_backend,
    check_times,
)
from holdfast.state.process import KeyedProcess, inspect_process
from holdfast.state.schema import parse_columns
from holdfast.state.trouble import user_frame
from holdfast.types import parse_duration


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """A stateful step."""

    uid: str
    kind: str
    """"process", "window" or "native"."""
    forgets: bool
    """Whether a TTL, timers, a window or a watermark keeps its state from growing."""


@dataclass(frozen=True, kw_only=True)
class TracedWatermark:
    column: str
    delay: timedelta
    place: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Everything that a pipeline declares."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    steps: tuple[TracedStep, ...] = ()
    watermarks: tuple[TracedWatermark, ...] = ()
    refused: HoldfastError | None = None
    """Why the job would not start, as far as that shows without Spark."""
    lost_at: str = ""
    """Where the pipeline did something that cannot be followed without Spark."""

    @property
    def complete(self) -> bool:
        return self.refused is None and not self.lost_at


def trace(job: Job) -> Trace:
    """Run the pipeline function of a job without Spark."""
    planner = _NotingPlanner(job.checkpoint.backend)
    loaded = pyspark_loaded()
    try:
        planner.run(job.declared_pipeline)
    except HoldfastError as error:
        return planner.trace(refused=error)
    except Exception as error:
        if pyspark_loaded() and not loaded:
            return trace(job)  # it imported PySpark itself: now there can be a stand-in for it
        place = user_frame(error)
        lost = f"{type(error).__name__}: {error}" + (f" at {place}" if place else "")
        return planner.trace(lost_at=lost)
    return planner.trace()


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What is known about a frame."""

    uid: str = ""
    """Of the source or step that returned it."""
    columns: tuple[str, ...] | None = None
    """None after an operation that may have changed them."""
    event_time: str | None = None
    sides: frozenset[str] | None = None
    """None for a frame that is not what a source or a step returned."""


_SAME_COLUMNS = {
    "filter", "where", "union", "unionAll", "unionByName", "distinct", "dropDuplicates",
    "dropDuplicatesWithinWatermark", "repartition", "coalesce", "limit", "alias", "hint",
    "sample",
}  # fmt: skip


class TracedFrame(Anything):
    """Stands for a DataFrame; every operation gives a frame again."""

    def __init__(self, planner: _NotingPlanner, known: _Known) -> None:
        self.hf_planner, self.hf_known = planner, known

    @property
    def columns(self) -> Any:
        known = self.hf_known.columns
        return Anything() if known is None else list(known)

    def side(self, name: str) -> TracedFrame:
        sides = self.hf_known.sides
        if sides is not None and name not in sides:
            raise JobDefinitionError(
                "SIDE_OUTPUT_NOT_FOUND",
                f"there is no side output {name!r} ({user_line()}).",
                fix=f"there are: {', '.join(sorted(sides)) or 'none'}.",
            )
        self.hf_planner.unread.pop((self.hf_known.uid, name), None)
        return TracedFrame(self.hf_planner, _Known())

    def transform(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return column(key) if isinstance(key, str) else _operated(self, "filter", ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Member(self, name) if is_frame_method(name) else column(name)


class _Member(Anything):
    """A method of a frame (`df.select`), or something that has methods (`df.na.fill`)."""

    def __init__(self, frame: TracedFrame, name: str) -> None:
        self.hf_frame, self.hf_name = frame, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _operated(self.hf_frame, self.hf_name, (*args, *kwargs.values()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Member(self.hf_frame, name)


def _operated(frame: TracedFrame, name: str, arguments: Iterable[Any]) -> TracedFrame:
    """The frame that a DataFrame operation gives."""
    known, arguments = frame.hf_known, list(arguments)
    others = [each.hf_known for each in arguments if isinstance(each, TracedFrame)]
    event_time = next(
        (each.event_time for each in (known, *others) if each.event_time is not None), None
    )
    columns = known.columns if name in _SAME_COLUMNS else None
    if name == "withColumn" and known.columns is not None:
        columns = tuple(dict.fromkeys((*known.columns, str(arguments[0]))))
    if name == "withWatermark":
        columns, event_time = known.columns, str(arguments[0])
        with suppress(HoldfastError):  # Spark reads more kinds of intervals than we do
            frame.hf_planner.note_watermark(event_time, parse_duration(arguments[1]))
    return TracedFrame(frame.hf_planner, _Known(columns=columns, event_time=event_time))


class _TracedFlow(Flow):
    """A Flow that lets columns pass where nobody knows which ones there are."""

    def _check_column(self, frame: Any, column: object, what: str) -> None:
        if frame.hf_known.columns is not None:
            super()._check_column(frame, column, what)


class _NotingPlanner:
    """The planner behind the Flow while a pipeline is looked at."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._graph = JobGraph()
        self._steps: list[TracedStep] = []
        self._watermarks: list[TracedWatermark] = []
        self.unread: dict[tuple[str, str], str] = {}
        """Side outputs that somebody must read and nobody does, and what to choose instead."""

    def run(self, pipeline: Any) -> None:
        with without_spark():
            pipeline(_TracedFlow(self, self._graph))
        for (uid, side), instead in self.unread.items():
            raise JobDefinitionError(
                "SIDE_OUTPUT_NOT_READ",
                f'nothing reads .side("{side}") of {uid!r}: its records would be lost.',
                fix=f'write them: flow.sink("{uid}-{side}", frame.side("{side}"), …), or '
                f"choose {instead}, which counts them.",
            )

    def trace(self, *, refused: HoldfastError | None = None, lost_at: str = "") -> Trace:
        return Trace(
            sources=self._graph.sources,
            sinks=self._graph.sinks,
            steps=tuple(self._steps),
            watermarks=tuple(self._watermarks),
            refused=refused,
            lost_at=lost_at,
        )

    def note_watermark(self, column: str, delay: timedelta) -> None:
        self._watermarks.append(TracedWatermark(column=column, delay=delay, place=user_line()))

    # What the Flow calls

    def is_frame(self, value: object) -> bool:
        return isinstance(value, TracedFrame)

    def columns(self, frame: TracedFrame) -> list[str]:
        return list(frame.hf_known.columns or ())

    def read(self, uid: str, source: Source) -> TracedFrame:
        schema = source.row_schema
        columns = tuple(parse_columns(schema).names) if schema else None
        sides: frozenset[str] = frozenset()
        if getattr(source, "on_bad_record", "") == "side":
            sides = frozenset({BAD_SIDE})
            self.unread[uid, BAD_SIDE] = 'on_bad_record="skip"'
        return TracedFrame(self, _Known(uid=uid, columns=columns, sides=sides))

    def watermark(
        self, frame: TracedFrame, column: str, delay: timedelta, idle_after: timedelta | None
    ) -> TracedFrame:
        self.note_watermark(column, delay)
        return TracedFrame(self, replace(frame.hf_known, event_time=column, sides=None))

    def ingestion_time(self, frame: TracedFrame, column: str) -> Any:
        return _operated(frame, "withColumn", (column,))

    def process(
        self,
        uid: str,
        frame: TracedFrame,
        keys: tuple[str, ...],
        process: KeyedProcess,
        *,
        late: LatePolicy | None,
        broadcast: Any,
    ) -> TracedFrame:
        check_process_backend(uid, self._backend)
        spec = inspect_process(process)
        known = frame.hf_known
        policy = check_times(uid, spec, known.event_time, late)
        # An operation in between may have dropped the column, and event time with it.
        if policy == "side" and known.event_time in (known.columns or ()):
            self.unread[uid, LATE] = 'late="drop"'
        check_broadcast(uid, spec, broadcast is not None)
        forgets = spec.on_timer or all(state.ttl for state in spec.states)
        self._note(uid, "process", forgets)
        return self._result(uid, process.output, {*spec.outputs, LATE})

    def window_process(
        self,
        uid: str,
        frame: TracedFrame,
        keys: tuple[str, ...],
        process: WindowProcess,
        *,
        windowing: Windowing,
        late: LateWindowPolicy | None,
    ) -> TracedFrame:
        check_process_backend(uid, self._backend)
        check_window_process(process, windowing.windows)
        if frame.hf_known.event_time is None:
            raise event_time_missing(uid)
        self._note(uid, "window", forgets=True)
        if late != "drop":
            self.unread[uid, LATE] = 'late="drop"'
        return self._result(uid, getattr(process, "output", None), {*process.sides, LATE})

    def aggregate(
        self,
        uid: str,
        frame: TracedFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        rolling: bool,
    ) -> TracedFrame:
        # Spark forgets a group when the watermark passes it: only with event time in the key.
        # A key that is made from event time (F.window) has that too, under another name.
        known = frame.hf_known
        made = known.columns is None
        forgets = known.event_time is not None and (made or known.event_time in keys)
        self._note(uid, "native", forgets)
        return TracedFrame(self, _Known(columns=(*keys, *columns), sides=frozenset()))

    def window_aggregate(
        self,
        uid: str,
        frame: TracedFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        windowing: Windowing,
    ) -> TracedFrame:
        if frame.hf_known.event_time is None:
            raise event_time_missing(uid)
        self._note(uid, "native", forgets=True)
        return TracedFrame(self, _Known(sides=frozenset()))

    def name_stateful(self, uid: str, frame: TracedFrame) -> TracedFrame:
        self._note(uid, "native", frame.hf_known.event_time is not None)
        return TracedFrame(self, frame.hf_known)

    def write(self, uid: str, frame: TracedFrame, sink: Sink) -> None:
        """The graph has it already."""

    def _note(self, uid: str, kind: str, forgets: bool) -> None:
        self._steps.append(TracedStep(uid=uid, kind=kind, forgets=forgets))

    def _result(self, uid: str, output: Any, sides: Iterable[str]) -> TracedFrame:
        columns = None if output is None else tuple(parse_columns(output).names)
        known = _Known(uid=uid, columns=columns, sides=frozenset(sides))
        return TracedFrame(self, known)
