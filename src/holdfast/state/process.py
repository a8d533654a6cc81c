"""What a user subclasses: :class:`KeyedProcess`, its context, and side outputs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.errors import JobDefinitionError
from holdfast.state.declare import State
from holdfast.state.handles import Cursor
from holdfast.state.schema import SchemaLike, parse_columns
from holdfast.types import check_name

MAIN = "main"
"""The tag of a step's main output; every other tag is a side output."""


class Context(Cursor):
    """Handed to ``process`` with every record.

    ``ctx.key`` is the current key: the value itself when keyed by one column, a tuple when
    keyed by several.
    """

    __slots__ = ()


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

    Side outputs are declared as ``sides = {"late": "user string, ts timestamp"}`` and fed
    with ``yield hf.to("late", user, ts)``.
    """

    output: ClassVar[SchemaLike]
    sides: ClassVar[Mapping[str, SchemaLike]] = {}

    def open(self) -> None:
        """Called once in every worker before the first record: open what is not state."""

    def process(self, record: Any, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_batch(self, keys: Sequence[Any], table: pa.Table, ctx: Context) -> Any:
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
    states = _states(cls)
    _refuse_undeclared_attributes(process)
    return ProcessSpec(states, outputs, batched)


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
