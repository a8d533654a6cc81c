"""From a Flow to the trunk: the one streaming query of a job.

The pipeline function runs with a :class:`TrunkPlanner` behind its Flow, which builds the
streaming frames, notes who reads what, and refuses what Spark would do wrongly or in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.checkpoint.compatibility import older_names
from holdfast.config import Backend
from holdfast.engine.frames import (
    CLOCK_MARK,
    Lineage,
    StreamFrame,
    has_watermark,
    lineage,
    mark_root,
    marks_in_order,
    root_of,
    stateful_positions,
    tag_of,
)
from holdfast.engine.idle import (
    NOTES,
    beater,
    with_beats,
    with_largest_time,
    without_beats,
)
from holdfast.engine.readers import Reader
from holdfast.engine.session import allow_unnamed_sources
from holdfast.engine.trunk import (
    Trunk,
    aggregated,
    blocks_to_rows,
    step_frame,
    united,
    windows_aggregated,
)
from holdfast.engine.wiring import Native, SinkRequest, Step, Wiring, read_by_two
from holdfast.engine.worker import (
    WIRE_COLUMNS,
    WIRE_DDL,
    KeyGroupProcessor,
    broadcaster,
    packer,
    repacker,
)
from holdfast.errors import JobDefinitionError
from holdfast.event_time.build import event_time_missing, windowed
from holdfast.event_time.idleness import Watched
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.step import WindowStep
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.job.flow import Flow
from holdfast.job.graph import JobGraph, OperatorSignature
from holdfast.job.job import Job
from holdfast.sinks.base import Sink
from holdfast.sources.base import Source
from holdfast.state.canonical import describe_layout
from holdfast.state.plan import (
    LatePolicy,
    StepPlan,
    check_broadcast,
    check_process_backend,
    check_times,
)
from holdfast.state.process import KeyedProcess, inspect_process
from holdfast.state.schema import parse_type, type_ddl
from holdfast.state.times import PROCESSING


@dataclass(frozen=True)
class InitialState:
    """Stored state of a step that a restore puts in place."""

    blocks: DataFrame
    """Rows as those of the step's input, packed by key group."""
    schema: pa.Schema


@dataclass(frozen=True)
class StepSettings:
    """What every process step of a run shares."""

    job_id: str
    run_id: str
    key_groups: int
    backend: Backend
    heap_limit: int
    sizes: Any
    """Accumulator that collects (uid, key group) -> (live keys, bytes)."""
    stored: Mapping[str, Mapping[str, Any]]
    """What is known of each step from earlier runs."""
    initial: Mapping[str, InitialState] = field(default_factory=dict)


def plan_trunk(
    job: Job,
    session: SparkSession,
    settings: StepSettings,
    job_directory: Path,
    reader: type[Reader] = Reader,
) -> Trunk:
    """Plan a job. The pipeline may be run up to three times: what is read by whom is known
    only at its end, and decides how sources are named and which outputs are passed on."""

    def run(*, named: bool, passed_on: frozenset[str], observed: bool) -> TrunkPlanner:
        graph = JobGraph()
        sources = reader(session, job_directory, named=named)
        idle_notes = job_directory / NOTES if observed else None
        planner = TrunkPlanner(graph, settings, sources, passed_on, idle_notes)
        job.declared_pipeline(Flow(planner, graph))
        if not graph.sinks:
            raise JobDefinitionError(
                "SINK_MISSING",
                f"job {job.name!r} has no sink: it would compute and throw away.",
                fix='end the pipeline with flow.sink("out", frame, hf.sinks.…).',
            )
        return planner

    survey = run(named=True, passed_on=frozenset(), observed=False)
    named = not survey.wiring.read_twice()
    passed_on = survey.wiring.outputs_read()
    final = survey
    if not named:
        allow_unnamed_sources(session)
    observed = survey.may_be_idle()
    if not named or survey.wiring.needs_pass_through(passed_on) or observed:
        final = run(named=named, passed_on=passed_on, observed=observed)
    return final.trunk(named)


class TrunkPlanner:
    """The planner behind the Flow while a job is being planned."""

    def __init__(
        self,
        graph: JobGraph,
        settings: StepSettings,
        reader: Reader,
        passed_on: frozenset[str],
        idle_notes: Path | None,
    ) -> None:
        self._graph, self._settings = graph, settings
        self._reader, self._passed_on = reader, passed_on
        self._idle_notes = idle_notes
        """Where it is noted which sources are idle; None if none of them may be."""
        self._watched: list[Watched] = []
        self.wiring = Wiring(graph)
        self._rolling: set[bool] = set()

    # What the Flow calls

    def is_frame(self, value: object) -> bool:
        return isinstance(value, DataFrame)

    def columns(self, frame: DataFrame) -> list[str]:
        return frame.columns

    def read(self, uid: str, source: Source) -> StreamFrame:
        rows, sides = self._reader.read(uid, source)

        def side(name: str) -> StreamFrame:
            self.wiring.side_reads.add(uid)
            return StreamFrame(mark_root(sides[name], f"{uid}/{name}"), root=f"{uid}/{name}")

        return StreamFrame(
            mark_root(rows, uid),
            root=uid,
            sides={name: partial(side, name) for name in sides},
        )

    def watermark(
        self, frame: DataFrame, column: str, delay: timedelta, idle_after: timedelta | None
    ) -> DataFrame:
        kind = frame.schema[column].dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz"):
            raise JobDefinitionError(
                "INVALID_EVENT_TIME",
                f"the watermark's column {column!r} is {kind}, not a timestamp.",
                fix=f'cast it: frame.withColumn("{column}", F.to_timestamp("{column}")).',
            )
        roots = lineage(frame).roots
        for root in roots:
            if root.partition("/")[0] in self.wiring.steps:
                raise JobDefinitionError(
                    "NOT_SUPPORTED",
                    f"the output of step {root!r} cannot have a watermark: Spark has one per "
                    "source, and it has moved on when the step's rows come out.",
                    fix="give the source a watermark, and keep what needs event time in the "
                    "first step.",
                )
        length = f"{delay // timedelta(milliseconds=1)} milliseconds"
        number = len(self._watched)
        sources = sorted({root.partition("/")[0] for root in roots})
        if idle_after is not None and not all(uid in self._graph.sources for uid in sources):
            raise JobDefinitionError(
                "NOT_SUPPORTED",
                f"idle_after is for sources, and the watermark's rows come from {sources}.",
                fix="give the source the watermark, before the first step.",
            )
        self._watched.append(Watched(tuple(sources), idle_after))
        if self._idle_notes is None:
            return frame.withWatermark(column, length)
        frame = with_largest_time(frame, number, column)
        if idle_after is None:
            return frame.withWatermark(column, length)
        ticks = mark_root(self._reader.ticks(sources[0]), f"{sources[0]}{CLOCK_MARK}")
        beat = beater(self._idle_notes, self._settings.run_id, number)
        beaten = with_beats(frame, ticks, column, beat)
        return without_beats(beaten.withWatermark(column, length))

    def ingestion_time(self, frame: DataFrame, column: str) -> DataFrame:
        return frame.withColumn(column, f.current_timestamp())

    def process(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        process: KeyedProcess,
        *,
        late: LatePolicy | None,
        broadcast: DataFrame | None,
    ) -> StreamFrame:
        check_process_backend(uid, self._settings.backend)
        schema = arrow_schema(frame, f"input of step {uid!r}")
        _check_key_types(uid, keys, schema)
        spec = inspect_process(process)
        renames = {
            state.name: state.renamed_from for state in spec.states if state.renamed_from
        }
        older = older_names(
            self._settings.stored.get(uid), [state.name for state in spec.states], renames
        )
        event_time = _event_time_of(uid, frame)
        plan = StepPlan(
            uid,
            process,
            spec,
            keys,
            schema,
            self._settings.key_groups,
            older,
            event_time,
            check_times(uid, spec, event_time, late),
            None
            if broadcast is None
            else arrow_schema(broadcast, f"broadcast of step {uid!r}"),
        )
        check_broadcast(uid, spec, broadcast is not None)
        traced = lineage(frame)
        self._refuse_unnamed(traced, f"step {uid!r}")
        self._refuse_after_aggregation(traced, uid)
        feeding = self.wiring.steps.get(root_of(frame))
        if feeding is not None:
            carried = sorted(self._passed_on & set(self.wiring.outputs_below(feeding)))
            source = f"{feeding.plan.uid}/{tag_of(frame)}"
            packed = feeding.blocks.mapInArrow(
                repacker(source, keys, schema, self._settings.key_groups, tuple(carried)),
                WIRE_DDL,
            )
        else:
            packed = self._packed(frame, keys, schema)
        settings = self._settings
        upstream = traced.roots
        if broadcast is not None:
            rules = self._broadcast_lineage(uid, broadcast)
            upstream |= rules.roots
            pack = broadcaster(plan.broadcast_schema, settings.key_groups)
            packed = packed.union(broadcast.mapInArrow(pack, WIRE_DDL))
        if PROCESSING in plan.timer_clocks:
            clock = mark_root(self._reader.clock(uid), f"{uid}{CLOCK_MARK}")
            nothing = [f"CAST(NULL AS {kind}) {name}" for name, kind in WIRE_COLUMNS]
            packed = packed.union(clock.selectExpr(*nothing))
        initial = settings.initial.get(uid)
        blocks = packed.groupBy("kg").transformWithState(
            KeyGroupProcessor(
                plan,
                rocksdb=settings.backend == "rocksdb",
                owner=f"{settings.job_id}/{uid}",
                run_id=settings.run_id,
                heap_limit=settings.heap_limit,
                sizes=settings.sizes,
                initial_schema=initial.schema if initial else None,
            ),
            WIRE_DDL,
            "Append",
            plan.time_mode,
            initialState=initial.blocks.groupBy("kg") if initial else None,
        )
        self.wiring.steps[uid] = Step(plan, blocks, upstream, feeding is not None)
        self._graph.steps[uid] = OperatorSignature(
            "process",
            {key: type_ddl(schema.field(key).type) for key in keys},
            {
                state.name: f"{state.kind_name} {type_ddl(state.stored)}"
                for state in (*spec.states, *spec.broadcasts)
            },
            renames,
            older,
            detail=process.windowing.signature if isinstance(process, WindowStep) else "",
            clock=plan.time_mode + (", timers" if PROCESSING in plan.timer_clocks else ""),
            layout=describe_layout(plan),
            forgets=spec.on_timer or all(state.ttl for state in spec.states),
        )
        return step_frame(plan, lambda tag: blocks_to_rows(blocks, plan, tag))

    def _packed(self, frame: DataFrame, keys: tuple[str, ...], schema: pa.Schema) -> DataFrame:
        """A frame's rows, packed by key group; straight from a source, decoded there too."""
        source = self._reader.undecoded(root_of(frame))
        if source is None:
            pack = packer(keys, schema, self._settings.key_groups)
            return frame.mapInArrow(pack, WIRE_DDL)
        pack = packer(keys, schema, self._settings.key_groups, source.decode)
        return mark_root(source.frame, root_of(frame)).mapInArrow(pack, WIRE_DDL)

    def aggregate(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        rolling: bool,
    ) -> StreamFrame:
        self._refuse_two_aggregations(uid, rolling)
        result = aggregated(frame, keys, columns)
        detail = f"{'rolling' if rolling else 'aggregate'}({_computed(columns)})"
        return self._native(uid, result, {key: _type_of(frame, key) for key in keys}, detail)

    def window_process(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        process: WindowProcess,
        *,
        windowing: Windowing,
        late: LateWindowPolicy | None,
    ) -> StreamFrame:
        step = windowed(
            process,
            windowing,
            uid=uid,
            schema=arrow_schema(frame, f"input of step {uid!r}"),
            event_time=_event_time_of(uid, frame),
            late=late,
        )
        return self.process(uid, frame, keys, step, late="process", broadcast=None)

    def window_aggregate(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        windowing: Windowing,
    ) -> StreamFrame:
        self._refuse_two_aggregations(uid, rolling=False)
        event_time = _event_time_of(uid, frame)
        if event_time is None:
            raise event_time_missing(uid)
        result = windows_aggregated(frame, keys, columns, windowing, event_time)
        detail = f"{windowing.signature}.aggregate({_computed(columns)})"
        return self._native(uid, result, {key: _type_of(frame, key) for key in keys}, detail)

    def name_stateful(self, uid: str, frame: DataFrame) -> StreamFrame:
        self._rolling.add(False)
        return self._native(uid, frame, {}, "")

    def _native(
        self, uid: str, frame: DataFrame, keys: Mapping[str, str], detail: str
    ) -> StreamFrame:
        traced = lineage(frame)
        if len(traced.stateful) != 1:
            found = "\n".join(f"  - {text}" for text in traced.stateful) or "  (none)"
            raise JobDefinitionError(
                "STATEFUL_STEP_UNCLEAR",
                f"step {uid!r} must name exactly one of Spark's stateful operators; the plan "
                f"has {len(traced.stateful)}:\n{found}",
                fix='name each one where it is made: df = flow.stateful("first", '
                'df.dropDuplicates(["id"])), then go on from df.',
            )
        self._refuse_after_aggregation(traced, uid)
        if any(root in self.wiring.steps for root in traced.roots):
            self._refuse_native_between(uid, traced)
        root = mark_root(frame, uid)
        self.wiring.natives[uid] = Native(root, traced, traced.stateful_kinds[0])
        self._graph.steps[uid] = OperatorSignature(
            "native",
            dict(keys),
            detail=detail or _without_ids(traced.stateful[0]),
            forgets=has_watermark(frame),
        )
        return StreamFrame(root, root=uid)

    def write(self, uid: str, frame: DataFrame, sink: Sink) -> None:
        traced = lineage(frame)
        self._refuse_unnamed(traced, f"sink {uid!r}")
        if not frame.isStreaming:
            raise JobDefinitionError(
                "SINK_NOT_STREAMING",
                f"sink {uid!r} gets a frame that does not come from a source of the flow.",
                fix="write what flow.source or a step returned, or a frame made from it.",
            )
        self.wiring.sinks.append(SinkRequest(uid, sink, frame, traced))

    # Checks

    def _refuse_two_aggregations(self, uid: str, rolling: bool) -> None:
        self._rolling.add(rolling)
        if len(self._rolling) == 2:
            raise JobDefinitionError(
                "NOT_SUPPORTED",
                f"step {uid!r}: a job cannot have both .rolling and .aggregate; Spark plans "
                "all aggregations of a query in the same way.",
                fix="put them into two jobs, or write one of them as a KeyedProcess.",
            )

    def _refuse_unnamed(self, traced: Lineage, reader: str) -> None:
        if traced.stateful:
            raise JobDefinitionError(
                "STATEFUL_STEP_UNNAMED",
                f"{reader} reads a stateful operator without a uid: {traced.stateful[0]}.",
                fix='name it: df = flow.stateful("totals", df.groupBy("user").sum("diff")). '
                "Its state is kept under that name.",
            )

    def _refuse_after_aggregation(self, traced: Lineage, uid: str) -> None:
        for root in traced.roots:
            native = self.wiring.natives.get(root)
            if native is not None and native.kind == "Aggregate":
                raise JobDefinitionError(
                    "AGGREGATION_NOT_LAST",
                    f"step {uid!r} comes after the native aggregation {root!r}. Without a "
                    "watermark an aggregation sends changed totals again and again, which a "
                    "later stateful step would count as new rows.",
                    fix=f"make {root!r} the last stateful step, or write it as a KeyedProcess.",
                )

    def _refuse_native_between(self, uid: str, traced: Lineage) -> None:
        for root in traced.roots:
            if root in self.wiring.steps and self._passed_on & set(
                self.wiring.outputs_below(self.wiring.steps[root])
            ):
                raise read_by_two(root, uid)

    def _broadcast_lineage(self, uid: str, frame: DataFrame) -> Lineage:
        traced = lineage(frame)
        self._refuse_unnamed(traced, f"the broadcast of step {uid!r}")
        if any(root.partition("/")[0] not in self._graph.sources for root in traced.roots):
            raise JobDefinitionError(
                "NOT_SUPPORTED",
                f"the broadcast of step {uid!r} comes from {sorted(traced.roots)}; it must "
                "come from a source, without a stateful step in between.",
                fix="broadcast what flow.source returned, or a DataFrame made from it.",
            )
        return traced

    # What was read by whom

    def may_be_idle(self) -> bool:
        """Whether a source that is silent for long is no longer waited for."""
        return any(each.idle_after is not None for each in self._watched)

    # The result

    def trunk(self, named: bool) -> Trunk:
        cuts = self.wiring.cuts()
        steps = self.wiring.steps
        kinds = {native.kind for native in self.wiring.natives.values()}
        frame = united(cuts.frames)
        marks = [mark.partition("/")[0] for mark in marks_in_order(frame)]
        self._graph.edges = self.wiring.edges()
        return Trunk(
            frame=frame,
            output_mode="update" if "Aggregate" in kinds else "append",
            rolling=True in self._rolling,
            native=bool(self.wiring.natives),
            cuts=tuple(cuts.frames),
            steps={uid: step.plan for uid, step in steps.items()},
            sinks=cuts.sinks,
            graph=self._graph,
            named_sources=named,
            reported_sources=tuple(
                uid for uid in marks if uid in self._graph.sources or uid.endswith(CLOCK_MARK)
            ),
            reported_natives=tuple(uid for uid in marks if uid in self.wiring.natives),
            watched=tuple(self._watched),
            carried=cuts.carried,
            positions=stateful_positions(
                frame, {uid: step.blocks for uid, step in steps.items()}
            ),
        )


def arrow_schema(frame: DataFrame, what: str) -> pa.Schema:
    """The Arrow form of a frame's columns, by the one mapping that the core uses."""
    names = frame.columns
    for name in names:
        if names.count(name) > 1:
            raise JobDefinitionError(
                "AMBIGUOUS_COLUMN",
                f"the {what} has two columns named {name!r}.",
                fix="rename or drop one of them before key_by.",
            )
    return pa.schema(
        [
            (field.name, parse_type(field.dataType, f"column {field.name!r} in the {what}"))
            for field in frame.schema.fields
        ]
    )


def _event_time_of(uid: str, frame: DataFrame) -> str | None:
    """The column with a watermark: Spark notes it on the column, through select and union."""
    found = [
        field.name
        for field in frame.schema.fields
        if "spark.watermarkDelayMs" in field.metadata
    ]
    if len(found) > 1:
        raise JobDefinitionError(
            "INVALID_EVENT_TIME",
            f"the input of step {uid!r} has watermarks on {found}.",
            fix="give it one: drop or rename the other columns before key_by.",
        )
    return found[0] if found else None


def _computed(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in columns.items())


def _type_of(frame: DataFrame, column: str) -> str:
    return frame.schema[column].dataType.simpleString()


def _check_key_types(uid: str, keys: tuple[str, ...], schema: Any) -> None:
    for key in keys:
        if "map<" in str(schema.field(key).type):
            raise JobDefinitionError(
                "INVALID_KEY_TYPE",
                f"step {uid!r} is keyed by {key!r}, which is or holds a map.",
                fix="key by columns without maps; Spark cannot group by them either.",
            )


def _without_ids(operator: str) -> str:
    """Spark numbers the columns of a plan anew in every run: `user#12` is `user`."""
    return re.sub(r"#\d+L?", "", operator)
