"""Who reads what in a job: which step feeds which, and where each sink gets its rows.

One Spark plan computes what two read twice. So a step has one reader, blocks that somebody
else wants pass through the steps below it, and every sink reads from a *cut*: a place where the
trunk ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from holdfast.engine.frames import Lineage, root_of, tag_of
from holdfast.engine.trunk import SinkPlan
from holdfast.errors import JobDefinitionError
from holdfast.event_time.step import WindowStep
from holdfast.job.graph import JobGraph
from holdfast.sinks.base import Sink
from holdfast.sources.base import BAD_SIDE
from holdfast.state.late import LATE
from holdfast.state.plan import StepPlan
from holdfast.state.process import MAIN


@dataclass(frozen=True)
class Step:
    plan: StepPlan
    blocks: DataFrame
    upstream: frozenset[str]
    direct: bool
    """Whether it reads another step's blocks without user code in between."""


@dataclass(frozen=True)
class Native:
    """A step on one of Spark's own stateful operators."""

    frame: DataFrame
    lineage: Lineage
    kind: str


@dataclass(frozen=True)
class SinkRequest:
    uid: str
    sink: Sink
    frame: DataFrame
    lineage: Lineage


@dataclass(frozen=True)
class Cuts:
    """Where the trunk ends."""

    frames: Mapping[str, DataFrame]
    sinks: tuple[SinkPlan, ...]
    carried: Mapping[str, str]
    """For each step, the last step of its chain: there its passed-on blocks come out."""


class Wiring:
    """Filled while a pipeline declares its parts; asked when all of them are there."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        self.steps: dict[str, Step] = {}
        self.natives: dict[str, Native] = {}
        self.sinks: list[SinkRequest] = []
        self.side_reads: set[str] = set()
        """Sources whose bad records are read."""

    # What was read by whom

    def _roots(self) -> dict[str, frozenset[str]]:
        """By uid of a step or sink, what it reads."""
        return (
            {uid: step.upstream for uid, step in self.steps.items()}
            | {uid: native.lineage.roots for uid, native in self.natives.items()}
            | {request.uid: request.lineage.roots for request in self.sinks}
        )

    def read_twice(self) -> bool:
        """Whether a source has several readers. Spark refuses a named source then."""
        readers: dict[str, int] = {}
        for roots in self._roots().values():
            for root in roots:
                source = root.removesuffix(f"/{BAD_SIDE}")
                if source in self._graph.sources:
                    readers[source] = readers.get(source, 0) + 1
        for uid, declared in self._graph.sources.items():
            if getattr(declared, "on_bad_record", "") == "side" and uid not in self.side_reads:
                raise JobDefinitionError(
                    "SIDE_OUTPUT_NOT_READ",
                    f'source {uid!r} has on_bad_record="side", but nothing reads '
                    f'.side("{BAD_SIDE}"): its bad records would be lost.',
                    fix=f'write them: flow.sink("bad", frame.side("{BAD_SIDE}"), …), or choose '
                    '"skip", which counts them.',
                )
        return any(count > 1 for count in readers.values())

    def outputs_read(self) -> frozenset[str]:
        """The outputs of process steps ("uid/tag") that sinks read."""
        read: set[str] = set()
        for request in self.sinks:
            for root in request.lineage.roots:
                uid, _, tag = root.partition("/")
                if uid in self.steps:
                    read.add(f"{uid}/{tag or MAIN}")
        return frozenset(read)

    def needs_pass_through(self, read: frozenset[str]) -> bool:
        inner = {
            root.partition("/")[0] for step in self.steps.values() for root in step.upstream
        }
        return any(output.partition("/")[0] in inner for output in read)

    def outputs_below(self, step: Step) -> list[str]:
        outputs = [f"{step.plan.uid}/{tag}" for tag in step.plan.outputs]
        if step.direct:
            for root in step.upstream:
                outputs += self.outputs_below(self.steps[root.partition("/")[0]])
        return outputs

    # Where it ends

    def cuts(self) -> Cuts:
        self._refuse_unread_late()
        carried = self._carriers()
        frames: dict[str, DataFrame] = {}
        sinks = tuple(self._place(request, carried, frames) for request in self.sinks)
        for uid in self._leaf_steps():
            frames.setdefault(uid, self.steps[uid].blocks)
        return Cuts(frames, sinks, carried)

    def _refuse_unread_late(self) -> None:
        read = {root for roots in self._roots().values() for root in roots}
        for uid, step in self.steps.items():
            late = step.plan.event_time is not None and LATE in step.plan.outputs
            if late and f"{uid}/{LATE}" not in read:
                kept = isinstance(step.plan.process, WindowStep)
                process = "" if kept else 'late="process" or '
                raise JobDefinitionError(
                    "SIDE_OUTPUT_NOT_READ",
                    f'nothing reads .side("{LATE}") of step {uid!r}: its late records would be '
                    "lost.",
                    fix=f'write them: flow.sink("{uid}-late", frame.side("{LATE}"), …), or '
                    f'choose .process(…, {process}late="drop"), which counts them.',
                )

    def edges(self) -> tuple[tuple[str, str], ...]:
        # Side outputs of one uid are one edge.
        read = self._roots().items()
        found = {(root.partition("/")[0], uid) for uid, roots in read for root in roots}
        return tuple(sorted(found))

    def _leaf_steps(self) -> list[str]:
        inner = {root.partition("/")[0] for roots in self._roots().values() for root in roots}
        return [uid for uid in self.steps if uid not in inner]

    def _carriers(self) -> dict[str, str]:
        """For each step, the last step of its chain: there its passed-on blocks come out."""
        carriers = {uid: uid for uid in self.steps}
        for uid, step in self.steps.items():
            for root in step.upstream:
                upper = root.partition("/")[0]
                if upper in self.steps:
                    if carriers[upper] != upper:
                        raise read_by_two(upper, uid)
                    carriers[upper] = uid
                    if not step.direct and self._wanted(upper):
                        raise read_by_two(upper, uid)
        for uid in self.steps:
            while carriers[carriers[uid]] != carriers[uid]:
                carriers[uid] = carriers[carriers[uid]]
        for uid, native in self.natives.items():
            for root in native.lineage.roots:
                upper = root.partition("/")[0]
                if upper in self.steps and self._wanted(upper):
                    raise read_by_two(upper, uid)
        return carriers

    def _wanted(self, uid: str) -> bool:
        return any(output.partition("/")[0] == uid for output in self.outputs_read())

    def _place(
        self, request: SinkRequest, carried: Mapping[str, str], cuts: dict[str, DataFrame]
    ) -> SinkPlan:
        roots = request.lineage.roots
        sources = {root for root in roots if root.partition("/")[0] in self._graph.sources}
        if not sources:
            for root in roots:
                uid = root.partition("/")[0]
                if uid in self.steps:
                    cuts[carried[uid]] = self.steps[carried[uid]].blocks
                else:
                    cuts[uid] = self.natives[uid].frame
            direct = root_of(request.frame)
            tag = tag_of(request.frame) if direct in self.steps else ""
            return SinkPlan(request.uid, request.sink, direct, tag)
        if sources != set(roots):
            raise JobDefinitionError(
                "SINK_MIXES_TRUNK",
                f"sink {request.uid!r} puts rows of {sorted(roots - sources)} together with "
                f"rows straight from {sorted(sources)}.",
                fix="write them to two sinks, or send the source's rows through the step.",
            )
        # Stateless from source to sink: the sink's own frame is part of the trunk.
        cuts[request.uid] = request.frame
        return SinkPlan(request.uid, request.sink, request.uid)


def read_by_two(root: str, reader: str) -> JobDefinitionError:
    return JobDefinitionError(
        "STEP_READ_BY_TWO",
        f"the output of step {root!r} is read by step {reader!r} and by something else. In "
        "one Spark plan it would be computed twice.",
        fix=f"key what {root!r} returned directly (no DataFrame operation in between; do that "
        f"work inside the process), and let one step read it; sinks may read {root!r} too.",
    )
