"""A whole job in plain Python: sources that a test pushes to, process steps, sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn

import pyarrow as pa

from holdfast.errors import JobDefinitionError
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.job.flow import Flow
from holdfast.job.graph import JobGraph
from holdfast.job.job import Job, Pipeline
from holdfast.sinks.base import Sink
from holdfast.sources.base import BAD_SIDE, Source
from holdfast.state.plan import LatePolicy
from holdfast.state.process import MAIN, KeyedProcess
from holdfast.state.rows import row_tuple, rows_to_batch
from holdfast.state.schema import columns_ddl, parse_columns
from holdfast.testing.harness import START, Harness, Snapshot
from holdfast.types import parse_duration

Rows = list[tuple[Any, ...]]
Epoch = dict[str, Rows]
"""The rows of one epoch, by where they come from: a source's uid, or `step/output`."""


@dataclass(frozen=True)
class PlainFrame:
    """Stands for a DataFrame while a pipeline is declared: where its rows come from."""

    schema: pa.Schema
    rows_of: Callable[[Epoch], Rows]
    sides: Mapping[str, PlainFrame]
    event_time: str | None = None

    def side(self, name: str) -> PlainFrame:
        if name not in self.sides:
            raise JobDefinitionError(
                "SIDE_OUTPUT_NOT_FOUND",
                f"there is no side output {name!r}.",
                fix=f"there are: {', '.join(self.sides) or 'none'}.",
            )
        return self.sides[name]

    def union(self, other: PlainFrame) -> PlainFrame:
        return replace(self, rows_of=lambda epoch: self.rows_of(epoch) + other.rows_of(epoch))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _needs_spark(f"DataFrame.{name}")


def _needs_spark(what: str) -> NoReturn:
    raise JobDefinitionError(
        "NOT_SUPPORTED",
        f"{what} needs Spark; the harness runs sources, process steps and sinks only.",
        fix="test the process alone with holdfast.testing.Harness, or the whole pipeline with "
        "job.run(available_now=True).",
    )


@dataclass
class _Watermark:
    """What one `flow.watermark` has seen."""

    frame: PlainFrame
    column: str
    delay: timedelta
    idle_after: timedelta | None
    last_rows: datetime = START
    largest: datetime | None = None
    """The largest time of its own rows."""
    reached: datetime | None = None

    def follow(self, epoch: Epoch, now: datetime) -> None:
        at = self.frame.schema.names.index(self.column)
        rows = self.frame.rows_of(epoch)
        times = [row[at].replace(tzinfo=UTC) for row in rows if row[at] is not None]
        if rows:
            self.last_rows = now
        if times:
            self.largest = max([*times, *([self.largest] if self.largest else [])])
            self.reach(self.largest)

    def reach(self, time: datetime) -> None:
        latest = time - self.delay
        self.reached = max(self.reached or latest, latest)

    def is_idle(self, now: datetime) -> bool:
        return self.idle_after is not None and now - self.last_rows >= self.idle_after


@dataclass(frozen=True)
class _Step:
    harness: Harness
    frame: PlainFrame
    rules: PlainFrame | None


class FlowHarness:
    """Runs the pipeline of a job with rows that a test pushes.

    >>> harness = FlowHarness(job)
    >>> harness.push("edits", ("ann", 3), ("ann", 4))
    >>> harness.output("out")
    [('ann', 3), ('ann', 7)]

    Each `push` is an epoch that all steps and sinks see; if a step raises, all of them are as
    before. Watermarks follow the rows as in a job, and take effect in the next epoch; the clock
    moves only with `advance_time`. DataFrame operations and native steps need Spark, and are
    refused.
    """

    def __init__(
        self, job: Job | Pipeline, *, backend: Literal["heap", "rocksdb"] = "heap"
    ) -> None:
        planner = _PlainPlanner(backend)
        pipeline = job.declared_pipeline if isinstance(job, Job) else job
        self._policy = job.watermark_policy if isinstance(job, Job) else "min"
        pipeline(Flow(planner, JobGraph()))
        self._planner = planner
        self._written: dict[str, Rows] = {uid: [] for uid in planner.sinks}
        self.now = START
        self.watermark: datetime | None = None

    def push(self, source: str, *rows: Any) -> None:
        """Process rows of a source (tuples, or dicts by column name) as one epoch."""
        self.push_all({source: rows})

    def push_all(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Process rows of several sources in one epoch."""
        epoch: Epoch = {}
        for uid, given in rows.items():
            schema = self._planner.sources.get(uid)
            if schema is None:
                raise JobDefinitionError(
                    "SOURCE_NOT_FOUND",
                    f"the flow has no source {uid!r}.",
                    fix=f"it has: {', '.join(self._planner.sources)}.",
                )
            epoch[uid] = [row_tuple(row, schema, "a pushed row") for row in given]
        self._run(epoch)

    def advance_time(self, by: str | timedelta) -> None:
        """Move the clock and run an epoch without records."""
        self.now += parse_duration(by, "time to advance")
        self._run({})

    def advance_watermark(self, to: datetime) -> None:
        """Move the watermark and run an epoch without records."""
        if self.watermark is not None and to < self.watermark:
            raise ValueError(f"the watermark is at {self.watermark} and cannot go back to {to}")
        self.watermark = to
        self._run({})

    def output(self, sink: str) -> Rows:
        """All rows that a sink has got so far."""
        return list(self._written[sink])

    def state(self, step: str, key: Any) -> dict[str, Any]:
        """The stored values of a key in a step, by variable."""
        return self._planner.steps[step].harness.state(key)

    def crash(self) -> None:
        """Lose all workers: new ones read back what was stored."""
        for step in self._planner.steps.values():
            step.harness.crash()

    def snapshot(self) -> dict[str, Snapshot]:
        """The committed state of all steps, by uid."""
        return {uid: step.harness.snapshot() for uid, step in self._planner.steps.items()}

    def restore(self, snapshot: Mapping[str, Snapshot]) -> None:
        """Go on from a snapshot. Output that is there already stays."""
        for uid, kept in snapshot.items():
            self._planner.steps[uid].harness.restore(kept)
            self.now, self.watermark = kept.now, kept.watermark
        for watermark in self._planner.watermarks:
            watermark.reached = self.watermark

    def _run(self, epoch: Epoch) -> None:
        before = self.snapshot()
        try:
            for uid, step in self._planner.steps.items():
                self._run_step(uid, step, epoch)
        except BaseException:
            for uid, kept in before.items():
                self._planner.steps[uid].harness.restore(kept)
            raise
        for uid, frame in self._planner.sinks.items():
            self._written[uid] += frame.rows_of(epoch)
        self._follow(epoch)

    def _run_step(self, uid: str, step: _Step, epoch: Epoch) -> None:
        step.harness.now, step.harness.watermark = self.now, self.watermark
        batch = rows_to_batch(step.frame.rows_of(epoch), step.frame.schema)
        rules = []
        if step.rules is not None and step.rules.rows_of(epoch):
            rules = [rows_to_batch(step.rules.rows_of(epoch), step.rules.schema)]
        for tag, rows in step.harness.run_epoch(batch, rules).items():
            epoch[f"{uid}/{tag}"] = rows

    def _follow(self, epoch: Epoch) -> None:
        found = self._planner.watermarks
        for watermark in found:
            watermark.follow(epoch, self.now)
        seen = [watermark.largest for watermark in found if watermark.largest is not None]
        for watermark in found:
            if seen and watermark.is_idle(self.now):
                watermark.reach(max(seen))  # nobody waits for it
        reached = [watermark.reached for watermark in found if watermark.reached is not None]
        if not reached or (self._policy == "min" and len(reached) < len(found)):
            return  # with "min" a source that is silent from the start holds it back
        now = min(reached) if self._policy == "min" else max(reached)
        self.watermark = max(self.watermark or now, now)


class _PlainPlanner:
    """The planner behind the Flow while a harness is made."""

    def __init__(self, backend: Literal["heap", "rocksdb"]) -> None:
        self._backend = backend
        self.sources: dict[str, pa.Schema] = {}
        self.steps: dict[str, _Step] = {}
        self.sinks: dict[str, PlainFrame] = {}
        self.watermarks: list[_Watermark] = []

    def read(self, uid: str, source: Source) -> PlainFrame:
        schema = parse_columns(source.row_schema)
        self.sources[uid] = schema
        bad = PlainFrame(
            parse_columns("raw string, reason string, file string"), lambda _: [], {}
        )
        return PlainFrame(schema, lambda epoch: epoch.get(uid, []), {BAD_SIDE: bad})

    def is_frame(self, value: object) -> bool:
        return isinstance(value, PlainFrame)

    def columns(self, frame: PlainFrame) -> list[str]:
        return list(frame.schema.names)

    def watermark(
        self, frame: PlainFrame, column: str, delay: timedelta, idle_after: timedelta | None
    ) -> PlainFrame:
        self.watermarks.append(_Watermark(frame, column, delay, idle_after))
        return replace(frame, event_time=column)

    def ingestion_time(self, frame: PlainFrame, column: str) -> PlainFrame:
        _needs_spark("ingestion_time")

    def process(
        self,
        uid: str,
        frame: PlainFrame,
        keys: tuple[str, ...],
        process: KeyedProcess,
        *,
        late: LatePolicy | None,
        broadcast: PlainFrame | None,
    ) -> PlainFrame:
        return self._step(uid, frame, keys, process, late=late, broadcast=broadcast)

    def window_process(
        self,
        uid: str,
        frame: PlainFrame,
        keys: tuple[str, ...],
        process: WindowProcess,
        *,
        windowing: Windowing,
        late: LateWindowPolicy | None,
    ) -> PlainFrame:
        return self._step(
            uid,
            frame,
            keys,
            process,
            late=late,
            window=windowing.windows,
            allowed_lateness=timedelta(microseconds=windowing.allowed_lateness),
            early=windowing.early and timedelta(microseconds=windowing.early),
        )

    def _step(
        self,
        uid: str,
        frame: PlainFrame,
        keys: tuple[str, ...],
        process: Any,
        *,
        broadcast: PlainFrame | None = None,
        **options: Any,
    ) -> PlainFrame:
        harness = Harness(
            process,
            columns_ddl(frame.schema),
            key=keys,
            event_time=frame.event_time,
            broadcast=None if broadcast is None else columns_ddl(broadcast.schema),
            backend=self._backend,
            **options,
        )
        self.steps[uid] = _Step(harness, frame, broadcast)
        outputs = {
            tag: PlainFrame(schema, _output(uid, tag), {})
            for tag, schema in harness.outputs.items()
        }
        main = outputs.pop(MAIN)
        return replace(main, sides=outputs)

    def aggregate(self, uid: str, *_: Any) -> PlainFrame:
        _needs_spark(f"the native step {uid!r}")

    window_aggregate = name_stateful = aggregate

    def write(self, uid: str, frame: PlainFrame, sink: Sink) -> None:
        self.sinks[uid] = frame


def _output(uid: str, tag: str) -> Callable[[Epoch], Rows]:
    return lambda epoch: epoch.get(f"{uid}/{tag}", [])
