"""A process step as it is shipped to the workers, and what follows from its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.blocks import StateLayout, StateVariable
from holdfast.state.declare import ListState, MapState, State
from holdfast.state.late import LATE, late_schema
from holdfast.state.process import KeyedProcess, ProcessSpec
from holdfast.state.timers import timer_variable
from holdfast.state.times import EVENT, PROCESSING, Clock

LatePolicy = Literal["side", "process", "drop"]
TimeMode = Literal["None", "EventTime", "ProcessingTime"]
"""Spark's names for the clock that its timers of a step follow."""


@dataclass(frozen=True)
class StepPlan:
    """A process step and its place in the job."""

    uid: str
    process: KeyedProcess
    spec: ProcessSpec
    keys: tuple[str, ...]
    input_schema: pa.Schema
    key_groups: int
    older_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By state variable: the names it was stored under before."""
    event_time: str | None = None
    """The input column that carries the watermark."""
    late: LatePolicy = "process"
    broadcast_schema: pa.Schema | None = None

    @cached_property
    def layout(self) -> StateLayout:
        variables: list[StateVariable] = []
        for state in self.spec.states:
            variables += state.variables(self.older_names.get(state.name, ()))
        variables += [timer_variable(clock) for clock in self.timer_clocks]
        keys = tuple(self.input_schema.field(name).type for name in self.keys)
        return StateLayout(keys, tuple(variables))

    @cached_property
    def state_places(self) -> list[tuple[State, int]]:
        """Each state and the place of its (first) variable in the layout."""
        places, at = [], 0
        for state in self.spec.states:
            places.append((state, at))
            at += len(state.variables())
        return places

    @property
    def paged(self) -> frozenset[str]:
        """Variables that hold many things of one key, which is not read whole to touch one."""
        return frozenset(
            variable.name
            for state in self.spec.states
            if isinstance(state, ListState | MapState)
            for variable in state.variables()
        )

    @property
    def expiries(self) -> list[tuple[int, int, Clock]]:
        """Of each state with a TTL: where its values are, where their expiries, its clock."""
        return [
            (at, at + 1, state.ttl.clock)
            for state, at in self.state_places
            if state.ttl is not None
        ]

    @property
    def timer_clocks(self) -> tuple[Clock, ...]:
        return _timer_clocks(self.spec, self.event_time is not None)

    @property
    def timer_places(self) -> dict[Clock, int]:
        first = len(self.layout.variables) - len(self.timer_clocks)
        return {clock: first + at for at, clock in enumerate(self.timer_clocks)}

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The columns of every output by tag."""
        late = {LATE: late_schema(self.input_schema)} if self.late == "side" else {}
        return {**self.spec.outputs, **late}

    @property
    def time_mode(self) -> TimeMode:
        clocks = {*self.timer_clocks, *(clock for _, _, clock in self.expiries)}
        if PROCESSING in clocks:
            return "ProcessingTime"
        return "EventTime" if self.event_time is not None else "None"


def _timer_clocks(spec: ProcessSpec, has_event_time: bool) -> tuple[Clock, ...]:
    if not spec.on_timer:
        return ()
    if spec.timers == "both":
        return (EVENT, PROCESSING)
    return (spec.timers or (EVENT if has_event_time else PROCESSING),)


def check_times(
    uid: str, spec: ProcessSpec, event_time: str | None, late: LatePolicy | None
) -> LatePolicy:
    """Refuse what needs event time where there is none; returns the policy for late records."""
    wants = [f"timers={spec.timers!r}"] if spec.timers in (EVENT, "both") else []
    wants += [
        f"the ttl of {state.name!r}"
        for state in spec.states
        if state.ttl is not None and state.ttl.clock == EVENT
    ]
    wants += [] if late is None else [f"late={shorten(late)}"]
    if event_time is None:
        if wants:
            raise JobDefinitionError(
                "EVENT_TIME_MISSING",
                f"step {uid!r} asks for event time ({', '.join(wants)}), but its input has no "
                "watermark.",
                fix='give the input one before key_by: edits = flow.watermark(edits, "ts", '
                'delay="10 s").',
            )
        return "process"
    if late is not None and late not in ("side", "process", "drop"):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"step {uid!r}: late={shorten(late)}.",
            fix='use "side" (default: read them with .side("late")), "process" or "drop".',
        )
    policy: LatePolicy = late or "side"
    if policy == "side" and LATE in spec.outputs:
        raise JobDefinitionError(
            "INVALID_NAME",
            f"step {uid!r} declares a side output {LATE!r}, the name for late records.",
            fix='rename it, or take late records yourself: .process(…, late="process") and '
            "ctx.is_late(record).",
        )
    return policy


def check_process_backend(uid: str, backend: str) -> None:
    if backend == "memory":
        raise JobDefinitionError(
            "NOT_SUPPORTED",
            f'step {uid!r} is a process; with backend="memory" (Spark\'s in-memory state '
            "store) there can only be native steps: Spark's Python state needs RocksDB.",
            fix='use backend="heap" or "rocksdb", or write the step with .aggregate.',
        )


def check_broadcast(uid: str, spec: ProcessSpec, given: bool) -> None:
    if bool(spec.broadcasts) == given:
        return
    raise JobDefinitionError(
        "BROADCAST_MISSING",
        f"step {uid!r} is given a broadcast stream, but its process has no BroadcastState."
        if given
        else f"step {uid!r} has broadcast state ({spec.broadcasts[0].name!r}), but is given no "
        "stream to fill it.",
        fix='declare `rules = hf.BroadcastState("string", "bigint")` and on_broadcast'
        if given
        else "pass the stream: .process(uid, process, broadcast=rules).",
    )
