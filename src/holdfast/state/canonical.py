"""The state of a step as plain columns: a row per key, its key columns, then its variables.

This is what canonical savepoints hold, and what is read, compared and corrected. It does not
depend on the backend, the number of partitions or the version of Spark. A step's signature,
which is stored with its state, is enough to read it: the code of the job is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.backend import Group
from holdfast.state.blocks import StateLayout, StateVariable
from holdfast.state.disk import DiskGroup
from holdfast.state.entries import value_prefix
from holdfast.state.heap import KeyGroup
from holdfast.state.key_groups import key_from_bytes
from holdfast.state.pages import whole
from holdfast.state.plan import StepPlan
from holdfast.state.schema import parse_type, type_ddl
from holdfast.state.stored import KeyEntries, LogEntries
from holdfast.state.timers import is_timer
from holdfast.state.ttl import earliest
from holdfast.state.values import decode, decode_keys, encode, encode_keys

Entries = Mapping[bytes, bytes]


def describe_layout(plan: StepPlan) -> list[dict[str, Any]]:
    """The variables of a step as its signature keeps them; plain data."""
    return [
        {
            "name": variable.name,
            "type": type_ddl(variable.kind),
            "older_names": list(variable.older_names),
            "clock": variable.clock,
            "paged": variable.name in plan.paged,
        }
        for variable in plan.layout.variables
    ]


@dataclass(frozen=True)
class StoredStep:
    """A step as its stored signature describes it."""

    uid: str
    keys: tuple[str, ...]
    layout: StateLayout
    paged: frozenset[str]
    backend: str

    @classmethod
    def of(cls, uid: str, signature: Mapping[str, Any], backend: str) -> StoredStep:
        keys = [(name, parse_type(kind)) for name, kind in signature["keys"]]
        variables = tuple(
            StateVariable(
                each["name"],
                parse_type(each["type"]),
                tuple(each["older_names"]),
                each["clock"],
            )
            for each in signature["layout"]
        )
        return cls(
            uid,
            tuple(name for name, _ in keys),
            StateLayout(tuple(kind for _, kind in keys), variables),
            frozenset(each["name"] for each in signature["layout"] if each["paged"]),
            backend,
        )

    @property
    def schema(self) -> pa.Schema:
        """A variable that has the name of another column is told apart by a prefix."""
        columns = dict(zip(self.keys, self.layout.key_kinds, strict=True))
        for variable in self.layout.variables:
            name = variable.name
            while name in columns:
                name = f"state_{name}"
            columns[name] = variable.kind
        return pa.schema(list(columns.items()))

    def live_keys(self, entries: Entries) -> int:
        """How many keys a key group has, by its head."""
        store = (LogEntries if self.backend == "heap" else KeyEntries)(_Frozen(entries))
        head = store.read_head()
        return 0 if head is None else head.live_keys

    def rows(self, entries: Entries) -> pa.RecordBatch:
        """All keys of one key group."""
        reader = _read_log if self.backend == "heap" else _read_keys
        keys, tables = reader(self, entries)
        columns = encode_keys(keys, self.layout.key_kinds)
        for variable, table in zip(self.layout.variables, tables, strict=True):
            columns.append(encode([whole(table.get(key)) for key in keys], variable.kind))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def fill(group: Group, layout: StateLayout, block: pa.RecordBatch) -> None:
    """Put a block of state into a key group in which its keys are not yet.

    Its columns are those of :attr:`StateLayout.schema`, of this layout or an older one.
    """
    keys = decode_keys([block.column(at) for at in range(len(layout.key_kinds))])
    names = {name: at for at, name in enumerate(block.schema.names)}
    group.ensure(keys)
    for key in keys:
        group.touch(key)
    for variable, table, queue in zip(
        layout.variables, group.tables, group.queues, strict=True
    ):
        at = variable.column_in(names)
        if at is None:
            continue  # added by newer code: no key has it yet
        column = block.column(at)
        if column.type != variable.kind:
            column = column.cast(variable.kind)
        for key, value in zip(keys, decode(column), strict=True):
            if value is not None:
                table[key] = value
                for time in _times(variable, value):
                    queue.note(time, key)


def _times(variable: StateVariable, value: Any) -> Iterable[int]:
    """When a value has to be looked at: all timers of a key, the earliest of its expiries."""
    if variable.clock is None:
        return ()
    return value if is_timer(variable) else [earliest(value)]


def _read_log(step: StoredStep, entries: Entries) -> tuple[Sequence[Any], Sequence[Any]]:
    group = KeyGroup.empty(step.layout, 0)
    group.catch_up(LogEntries(_Frozen(entries)))
    return group.all_keys(), group.tables


def _read_keys(step: StoredStep, entries: Entries) -> tuple[Sequence[Any], Sequence[Any]]:
    store = KeyEntries(_Frozen(entries))
    group = DiskGroup(step.layout, 0, paged=step.paged)
    group.begin(store.entries, store.read_head())
    keys: dict[Any, None] = {}
    for variable in step.layout.variables:
        for name in (variable.name, *variable.older_names):
            prefix = value_prefix(name)
            for entry in entries:
                if entry.startswith(prefix):
                    keys[_key(entry[len(prefix) :], step)] = None
    group.ensure(keys)
    return list(keys), group.tables


def _key(data: bytes, step: StoredStep) -> Any:
    try:
        return key_from_bytes(data, step.layout.key_kinds)
    except (ValueError, IndexError, ArithmeticError) as error:
        raise CorruptionError(
            "STATE_KEY_UNREADABLE",
            f"step {step.uid!r}: a stored key of {len(data)} bytes does not fit the key "
            f"columns {list(step.keys)}: {error}.",
            fix="use another savepoint; this one is damaged.",
        ) from error


class _Frozen:
    """Entries that are only read."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._entries.get(key) for key in keys]

    def put_many(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        raise NotImplementedError("stored state is not changed")

    def remove_many(self, keys: Sequence[bytes]) -> None:
        raise NotImplementedError("stored state is not changed")
