"""What a user subclasses: :class:`KeyedProcess`, its context, and side outputs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.declare import BroadcastState, State
from holdfast.state.handles import Cursor
from holdfast.state.schema import SchemaLike, parse_columns
from holdfast.state.timers import Timer, Timers
from holdfast.state.times import EVENT, PROCESSING, micros, moment
from holdfast.types import check_name

MAIN = "main"
"""The tag of a step's main output; every other tag is a side output."""


class Context(Cursor):
    """Handed to ``process`` with every record, and to ``on_timer`` with every timer.

    ``ctx.key`` is the current key: the value itself when keyed by one column, a tuple when
    keyed by several. ``ctx.timers`` registers and deletes timers of that key.
    """

    __slots__ = ("_column", "timers")

    def __init__(self, event_time_column: str | None = None) -> None:
        super().__init__()
        self._column = event_time_column
        self.timers: Timers

    @property
    def watermark(self) -> datetime | None:
        """No record at or before this time is expected any more; None before the first."""
        return None if self.time.watermark is None else moment(self.time.watermark)

    @property
    def now(self) -> datetime:
        """Processing time: when the epoch began. A repeated epoch sees the same."""
        if self.time.now is None:
            raise JobDefinitionError(
                "TIME_NOT_AVAILABLE",
                "ctx.now was read in a step that declares no use of time.",
                fix='declare `timers = "processing"` on the process (and on_timer), or add a '
                'column: flow.ingestion_time(frame, "ingested").',
            )
        return moment(self.time.now)

    @property
    def timestamp(self) -> datetime | None:
        """The event time of the current record or event-time timer."""
        return None if self.event_time is None else moment(self.event_time)

    def is_late(self, record: Any) -> bool:
        """Whether the watermark has passed a record."""
        if self._column is None or self.time.watermark is None:
            return False
        found = record[self._column]
        if found is None:
            return False
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return micros(aware) <= self.time.watermark


@dataclass(frozen=True, slots=True)
class Routed:
    """A row on its way to a side output; made by :func:`to`."""

    side: str
    row: tuple[Any, ...]


def to(side: str, *values: Any) -> Routed:
    """Send a row to a side output: ``yield hf.to("late", user, ts)``."""
    return Routed(side, values)


class KeyedProcess:
    """A function with state per key.

    Subclass it, declare state as class attributes and the output's columns as ``output``,
    and write one of

    - ``process(self, record, ctx)``: called once per record. Records of one key that lie in
      one file come in the file's order; between files there is no order, as between the
      partitions of a topic. It may yield any number of rows (tuples, or dicts by column
      name), or return a list of them, or None.
    - ``process_batch(self, keys, table, ctx)``: called with all records that a key group got
      in an epoch. `keys` is a sequence with one key per row, `table` an Arrow table. It
      returns an Arrow table (or record batch) of the output's columns, or None. Read and
      write state with ``self.total.get_many(keys)`` and
      ``self.total.put_many(keys, values)``.

    What survives a crash is what was written to declared state; attributes set in
    ``__init__`` are constants that are shipped to the workers. After a crash records may be
    processed again, from the state of the last committed epoch: keep ``process`` free of
    effects outside of it, and of chance.

    Timers call ``on_timer(self, timer, ctx)`` for the key that registered them:
    ``ctx.timers.register(ctx.timestamp + timedelta(minutes=5))``. A step whose input has a
    watermark has event-time timers, another one processing-time timers; `timers` says
    otherwise: "event", "processing" or "both".

    A second stream of few rows that all keys must know (rules, thresholds) is given with
    ``.process(…, broadcast=rules)``; ``on_broadcast(self, row, ctx)`` puts its rows into a
    :class:`holdfast.BroadcastState`.

    Side outputs are declared as ``sides = {"late": "user string, ts timestamp"}`` and fed
    with ``yield hf.to("late", user, ts)``.
    """

    output: ClassVar[SchemaLike]
    sides: ClassVar[Mapping[str, SchemaLike]] = {}
    timers: ClassVar[Literal["event", "processing", "both"] | None] = None

    def open(self) -> None:
        """Called once in every worker before the first record: open what is not state."""

    def process(self, record: Any, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_batch(self, keys: Sequence[Any], table: pa.Table, ctx: Context) -> Any:
        raise NotImplementedError

    def on_timer(self, timer: Timer, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_broadcast(self, row: Any, ctx: Context) -> None:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), State):
            raise JobDefinitionError(
                "STATE_OVERWRITTEN",
                f"{type(self).__name__}.{name} is state; it cannot be assigned.",
                fix=f"assign its value: self.{name}.value = …",
            )
        if self.__dict__.get("_running", False):
            raise JobDefinitionError(
                "ATTRIBUTE_IS_NOT_STATE",
                f"{type(self).__name__}.{name} was assigned while records are processed; "
                "it would be lost in a restart and differ between workers.",
                fix=f"declare it as state, such as `{name} = hf.ValueState(…)`, or set it in "
                "__init__ if it is a constant.",
            )
        super().__setattr__(name, value)


@dataclass(frozen=True)
class ProcessSpec:
    """What the declaration of a process says, checked."""

    states: tuple[State, ...]
    outputs: Mapping[str, pa.Schema]
    """By tag: :data:`MAIN` and the side outputs."""
    batched: bool
    on_timer: bool = False
    timers: Literal["event", "processing", "both"] | None = None
    broadcasts: tuple[BroadcastState, ...] = ()


def inspect_process(process: KeyedProcess) -> ProcessSpec:
    """Check a process as far as that can be done without running it."""
    cls = type(process)
    batched = cls.process_batch is not KeyedProcess.process_batch
    if batched == (cls.process is not KeyedProcess.process):
        raise JobDefinitionError(
            "PROCESS_NOT_DEFINED",
            f"{cls.__name__} must define process or process_batch, and not both.",
            fix="write `def process(self, record, ctx)` for a function per record, or "
            "`def process_batch(self, keys, table, ctx)` for Arrow columns.",
        )
    if not hasattr(cls, "output"):
        raise JobDefinitionError(
            "OUTPUT_NOT_DECLARED",
            f"{cls.__name__} does not say which columns it yields.",
            fix='declare them, such as `output = "user string, total bigint"`.',
        )
    outputs = {MAIN: parse_columns(cls.output, f"output of {cls.__name__}")}
    for side, schema in cls.sides.items():
        if side == MAIN:
            raise JobDefinitionError(
                "INVALID_NAME",
                f"{cls.__name__} declares a side output named {MAIN!r}, which is the main one.",
                fix="give the side output another name.",
            )
        outputs[check_name(side, "side output")] = parse_columns(
            schema, f"side output {side!r} of {cls.__name__}"
        )
    declared = _states(cls)
    states = tuple(state for state in declared if not isinstance(state, BroadcastState))
    broadcasts = tuple(state for state in declared if isinstance(state, BroadcastState))
    if bool(broadcasts) != (cls.on_broadcast is not KeyedProcess.on_broadcast):
        raise JobDefinitionError(
            "BROADCAST_MISSING",
            f"{cls.__name__} must have both broadcast state and on_broadcast, or neither.",
            fix='declare `rules = hf.BroadcastState("string", "bigint")` and write '
            "`def on_broadcast(self, row, ctx)`, which fills it.",
        )
    _refuse_undeclared_attributes(process)
    on_timer = cls.on_timer is not KeyedProcess.on_timer
    _check_timers(cls, on_timer, batched)
    return ProcessSpec(states, outputs, batched, on_timer, cls.timers, broadcasts)


def _check_timers(cls: type[KeyedProcess], on_timer: bool, batched: bool) -> None:
    if cls.timers not in (None, EVENT, PROCESSING, "both"):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"{cls.__name__}.timers is {shorten(cls.timers)}.",
            fix='use "event", "processing" or "both".',
        )
    if cls.timers is not None and not on_timer:
        raise JobDefinitionError(
            "ON_TIMER_MISSING",
            f"{cls.__name__} declares timers={cls.timers!r} but no on_timer.",
            fix="write `def on_timer(self, timer, ctx)`, which is called when a timer fires.",
        )
    if on_timer and batched:
        raise JobDefinitionError(
            "NOT_SUPPORTED",
            f"{cls.__name__} has on_timer and process_batch; timers belong to a key, and a "
            "batch has many.",
            fix="write `process` instead of `process_batch`.",
        )


def _states(cls: type[KeyedProcess]) -> tuple[State, ...]:
    states: dict[str, State] = {}
    for owner in reversed(cls.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, State):
                states[name] = value
            else:
                states.pop(name, None)
    names = set(states)
    for name, state in states.items():
        if state.renamed_from in names:
            raise JobDefinitionError(
                "INVALID_RENAME",
                f"{cls.__name__}.{name} is renamed_from={state.renamed_from!r}, "
                "which is still declared.",
                fix=f"remove the old declaration, or the renamed_from of {name!r}.",
            )
    return tuple(states.values())


def _refuse_undeclared_attributes(process: KeyedProcess) -> None:
    """Find `self.x` that nothing defines, by reading the source of the class.

    The source may not be there (a REPL, generated code); then the same mistake is found
    when the first record runs.
    """
    cls = type(process)
    if hasattr(cls, "__getattr__"):
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        path, first = inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError, SyntaxError):
        return
    uses = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]
    assigned = {node.attr for node in uses if isinstance(node.ctx, ast.Store)}
    for node in uses:
        if node.attr in assigned or hasattr(cls, node.attr) or node.attr in vars(process):
            continue
        raise JobDefinitionError(
            "STATE_NOT_DECLARED",
            f"{cls.__name__} uses self.{node.attr}, which is not declared "
            f"({path}:{first + node.lineno - 1}).",
            fix=f"declare it on the class, such as `{node.attr} = "
            f'hf.ValueState("bigint", default=0)`; declared are: '
            f"{', '.join(state.name for state in _states(cls)) or 'none'}.",
            attribute=node.attr,
        )
