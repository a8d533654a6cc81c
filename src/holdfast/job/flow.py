"""The Flow: sources, keyed steps and sinks around plain PySpark DataFrames.

This module only declares and checks. What a declaration becomes is up to the planner that
the engine puts behind it, which keeps pyspark out of this layer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import JobDefinitionError, shorten
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import LateWindowPolicy, Windowing, declared_windowing
from holdfast.event_time.windows import Duration, Windows
from holdfast.job.graph import JobGraph, user_line
from holdfast.job.windowed import WindowedStream, check_columns
from holdfast.sinks.base import Sink
from holdfast.sources.base import Source
from holdfast.state.plan import LatePolicy
from holdfast.state.process import KeyedProcess, inspect_process
from holdfast.types import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    class Stream(DataFrame):
        """A DataFrame that also knows its side outputs."""

        def side(self, name: str) -> DataFrame: ...


class Planner(Protocol):
    """What the engine does with each declaration."""

    def read(self, uid: str, source: Source) -> Any: ...

    def is_frame(self, value: object) -> bool: ...

    def columns(self, frame: Any) -> list[str]: ...

    def watermark(
        self, frame: Any, column: str, delay: timedelta, idle_after: timedelta | None
    ) -> Any: ...

    def ingestion_time(self, frame: Any, column: str) -> Any: ...

    def process(
        self,
        uid: str,
        frame: Any,
        keys: tuple[str, ...],
        process: KeyedProcess,
        *,
        late: LatePolicy | None,
        broadcast: Any,
    ) -> Any: ...

    def aggregate(
        self,
        uid: str,
        frame: Any,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        rolling: bool,
    ) -> Any:
        """`columns` by output name: a Column, or the name of a reduction of that column."""

    def window_process(
        self,
        uid: str,
        frame: Any,
        keys: tuple[str, ...],
        process: WindowProcess,
        *,
        windowing: Windowing,
        late: LateWindowPolicy | None,
    ) -> Any: ...

    def window_aggregate(
        self,
        uid: str,
        frame: Any,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        windowing: Windowing,
    ) -> Any: ...

    def name_stateful(self, uid: str, frame: Any) -> Any: ...

    def write(self, uid: str, frame: Any, sink: Sink) -> None: ...


class Flow:
    """Handed to the pipeline function; every call names a part of the job."""

    def __init__(self, planner: Planner, graph: JobGraph) -> None:
        self._planner, self._graph = planner, graph

    def source(self, uid: str, source: Source) -> Stream:
        """Read a source. The result is a streaming DataFrame."""
        self._graph.claim(uid, "source")
        if not isinstance(source, Source):
            raise _wrong_argument("source", uid, source, "a descriptor of hf.sources")
        self._graph.sources[uid] = source
        return self._planner.read(uid, source)  # type: ignore[no-any-return]

    def watermark(
        self,
        frame: DataFrame,
        column: str,
        *,
        delay: str | timedelta | float,
        idle_after: str | timedelta | float | None = None,
    ) -> DataFrame:
        """Give a stream event time: `column` says when each record happened.

        The watermark is the largest time seen so far, less `delay`. A record at or before it
        is late. With several sources the smallest watermark counts; one that has had no rows
        for `idle_after` is no longer waited for.
        """
        self._check_frame(frame, "watermark")
        self._check_column(frame, column, "watermark")
        length = parse_duration(delay, "delay of the watermark")
        patience = None
        if idle_after is not None:
            patience = parse_duration(idle_after, "idle_after of the watermark")
            if patience <= timedelta(0):
                raise JobDefinitionError(
                    "INVALID_OPTION",
                    f"idle_after of the watermark is {shorten(idle_after)} ({user_line()}).",
                    fix='give the time without rows after which a source is idle: "1 min".',
                )
        return self._planner.watermark(  # type: ignore[no-any-return]
            frame, column, length, patience
        )

    def ingestion_time(self, frame: DataFrame, column: str) -> DataFrame:
        """Add a timestamp column: when the epoch that read the record began."""
        self._check_frame(frame, "ingestion_time")
        if not isinstance(column, str) or column in self._planner.columns(frame):
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"ingestion_time is to add the column {shorten(column)} ({user_line()}).",
                fix="give the name of a column that the frame does not have.",
            )
        return self._planner.ingestion_time(frame, column)  # type: ignore[no-any-return]

    def key_by(self, frame: DataFrame, *keys: str) -> KeyedStream:
        """Key a stream by one or more columns."""
        self._check_frame(frame, "key_by")
        columns = self._planner.columns(frame)
        if not keys:
            raise JobDefinitionError(
                "KEY_MISSING",
                f"key_by names no column ({user_line()}).",
                fix=f"name at least one of {', '.join(columns)}.",
            )
        for key in keys:
            self._check_column(frame, key, "key_by")
        return KeyedStream(self._planner, self._graph, frame, keys)

    def stateful(self, uid: str, frame: DataFrame) -> Stream:
        """Name one of Spark's own stateful operators (groupBy, dropDuplicates, a join …)."""
        self._graph.claim(uid, "stateful step")
        self._check_frame(frame, "stateful")
        return self._planner.name_stateful(uid, frame)  # type: ignore[no-any-return]

    def sink(self, uid: str, frame: DataFrame, sink: Sink) -> None:
        """Write a frame. Every sink of a job sees the same epochs."""
        self._graph.claim(uid, "sink")
        self._check_frame(frame, f"sink {uid!r}")
        if not isinstance(sink, Sink):
            raise _wrong_argument("sink", uid, sink, "a descriptor of hf.sinks")
        self._graph.sinks[uid] = sink
        self._planner.write(uid, frame, sink)

    def _check_column(self, frame: DataFrame, column: object, what: str) -> None:
        columns = self._planner.columns(frame)
        if column not in columns:
            raise JobDefinitionError(
                "KEY_NOT_FOUND",
                f"{what} names {shorten(column)}, which is not a column ({user_line()}).",
                fix=f"use columns of the frame: {', '.join(columns)}.",
            )

    def _check_frame(self, frame: object, what: str) -> None:
        if not self._planner.is_frame(frame):
            raise JobDefinitionError(
                "NOT_A_FRAME",
                f"{what} got {shorten(frame)}, which is not a DataFrame ({user_line()}).",
                fix="pass what flow.source or a step returned, or a DataFrame made from it. "
                "The uid comes first.",
            )


class KeyedStream:
    """A stream keyed by columns; each method is a stateful step with a uid."""

    def __init__(
        self, planner: Planner, graph: JobGraph, frame: DataFrame, keys: tuple[str, ...]
    ) -> None:
        self._planner, self._graph, self._frame, self._keys = planner, graph, frame, keys

    def process(
        self,
        uid: str,
        process: KeyedProcess,
        *,
        late: LatePolicy | None = None,
        broadcast: DataFrame | None = None,
    ) -> Stream:
        """Run a Python function with state per key. See :class:`holdfast.KeyedProcess`.

        Where the stream has a watermark, `late` says what happens to records that it has
        passed: "side" (default) sends them to ``.side("late")``, "process" hands them to the
        process like all others (see ``ctx.is_late``), "drop" drops them. All are counted.

        `broadcast` is a second stream of few rows, such as rules; each of them reaches every
        key, by ``on_broadcast``.
        """
        self._graph.claim(uid, "process step")
        if isinstance(process, type) or not isinstance(process, KeyedProcess):
            raise _wrong_argument("process step", uid, process, _wanted_process(process))
        inspect_process(process)
        if broadcast is not None and not self._planner.is_frame(broadcast):
            raise _wrong_argument("broadcast of", uid, broadcast, "a streaming DataFrame")
        return self._planner.process(  # type: ignore[no-any-return]
            uid, self._frame, self._keys, process, late=late, broadcast=broadcast
        )

    def window(
        self,
        windows: Windows,
        *,
        allowed_lateness: Duration = 0,
        early: Duration | None = None,
    ) -> WindowedStream:
        """Cut the stream into windows of event time; it needs a watermark.

        >>> keyed.window(hf.windows.Tumbling("5 min")).process("counts", CountTags())

        A window gives its result when the watermark reaches its end. With `allowed_lateness` it
        is kept for that long afterwards, and gives it again with every record that still
        comes. With `early`, a window that goes on gives it every so often in processing time,
        if it has changed.
        """
        windowing = declared_windowing(windows, allowed_lateness, early)
        return WindowedStream(self._planner, self._graph, self._frame, self._keys, windowing)

    def aggregate(self, uid: str, **columns: Column) -> Stream:
        """Spark's native aggregation; emits each changed key once per epoch.

        >>> keyed.aggregate("totals", total=F.sum("diff"), edits=F.count("*"))
        """
        return self._native(uid, columns, rolling=False)

    def rolling(self, uid: str, **columns: Column) -> Stream:
        """Native aggregation that emits one row per input record, with the value so far."""
        return self._native(uid, columns, rolling=True)

    def reduce(self, uid: str, **functions: str) -> Stream:
        """Native aggregation by function name: ``reduce("top", diff="max")``.

        Emits the key and the reduced columns under their own names.
        """
        known = {"sum", "min", "max", "count", "avg", "first", "last", "bool_and", "bool_or"}
        for column, name in functions.items():
            if name not in known:
                raise JobDefinitionError(
                    "INVALID_OPTION",
                    f"reduce {uid!r}: {column}={shorten(name)} is not a reduction.",
                    fix=f"use one of {', '.join(sorted(known))}, or .aggregate with columns.",
                )
        return self._native(uid, dict(functions), rolling=False)

    def _native(self, uid: str, columns: dict[str, Any], *, rolling: bool) -> Stream:
        self._graph.claim(uid, "aggregation")
        check_columns(uid, columns)
        return self._planner.aggregate(  # type: ignore[no-any-return]
            uid, self._frame, self._keys, columns, rolling
        )


def _wanted_process(process: object) -> str:
    if isinstance(process, WindowProcess):
        return 'a KeyedProcess, or give it windows: keyed.window(hf.windows.Tumbling("5 min"))'
    return "a KeyedProcess instance"


def _wrong_argument(what: str, uid: str, value: object, wanted: str) -> JobDefinitionError:
    return JobDefinitionError(
        "WRONG_ARGUMENT",
        f"{what} {uid!r} got {shorten(value)} ({user_line()}).",
        fix=f"pass {wanted}.",
    )
