"""A process step in plain Python.

It runs on the very same core as in a Spark worker: keys are cut into key groups, state is
encoded into blocks and logged, and what a crash leaves behind is what was stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from holdfast.errors import JobDefinitionError
from holdfast.state.heap import HeapCache, KeyGroup
from holdfast.state.key_groups import KeyGroupIndex, key_group_of
from holdfast.state.packing import from_wire, pack, to_wire
from holdfast.state.process import MAIN, KeyedProcess, inspect_process
from holdfast.state.rows import row_tuple, rows_to_batch
from holdfast.state.runner import StepPlan, StepRunner
from holdfast.state.schema import SchemaLike, parse_columns
from holdfast.state.values import decode
from holdfast.testing.stores import BatchStore, StoredGroup

Outputs = dict[str, list[tuple[Any, ...]]]
"""Rows by output tag."""
_KEY_GROUPS = 64
_UID = "step"
_HEAP = 1 << 30


@dataclass(frozen=True)
class Snapshot:
    """The committed state at one moment."""

    groups: Mapping[int, StoredGroup]


class Harness:
    """Runs a process with rows that a test pushes.

    >>> harness = Harness(ComputeDiffs(), "user string, diff bigint", key="user")
    >>> harness.push(("ann", 3), ("ann", 4))
    [('ann', 3), ('ann', 7)]
    >>> harness.state("ann")
    {'total': 7}

    Each `push` is an epoch: if the process raises, the error is the one a job would end with,
    and the state is as it was before. `crash` loses the worker and all that it kept in memory.
    """

    def __init__(
        self, process: KeyedProcess, schema: SchemaLike, *, key: str | tuple[str, ...]
    ) -> None:
        self._schema = parse_columns(schema, "schema of the input")
        self._keys = (key,) if isinstance(key, str) else tuple(key)
        for name in self._keys:
            if name not in self._schema.names:
                raise JobDefinitionError(
                    "KEY_NOT_FOUND",
                    f"the key {name!r} is not a column of the input.",
                    fix=f"use columns of the schema: {', '.join(self._schema.names)}.",
                )
        # Kept as it was given: every worker gets a copy, as in a job.
        self._process, self._spec = process, inspect_process(process)
        self._stored: dict[int, StoredGroup] = {}
        self._outputs: Outputs = {tag: [] for tag in self._spec.outputs}
        self._index = KeyGroupIndex(_KEY_GROUPS)
        self.crash()

    def push(self, *rows: Any) -> list[tuple[Any, ...]]:
        """Process rows (tuples, or dicts by column name) as one epoch; its main output."""
        begun = {number: BatchStore(group) for number, group in self._stored.items()}
        outputs: Outputs = {tag: [] for tag in self._outputs}
        tuples = [row_tuple(row, self._schema, "a pushed row") for row in rows]
        batch = rows_to_batch(tuples, self._schema)
        for number, block in pack([batch], self._keys, self._index):
            store = begun.setdefault(number, BatchStore(StoredGroup()))
            sent = from_wire(to_wire(block), self._schema)
            for tag, made in self._runner.run(store, number, [sent]).outputs:
                columns = [decode(column) for column in made.columns]
                outputs[tag].extend(zip(*columns, strict=True))
        # Reached only if all went well: the epoch is committed.
        self._stored = {number: store.group for number, store in begun.items()}
        for tag, found in outputs.items():
            self._outputs[tag].extend(found)
        return outputs[MAIN]

    @property
    def output(self) -> list[tuple[Any, ...]]:
        """All rows of the main output so far. Between keys there is no order."""
        return list(self._outputs[MAIN])

    def side(self, name: str) -> list[tuple[Any, ...]]:
        """All rows of a side output so far."""
        sides = [tag for tag in self._outputs if tag != MAIN]
        if name not in sides:
            raise JobDefinitionError(
                "SIDE_OUTPUT_NOT_FOUND",
                f"the process declares no side output {name!r}.",
                fix=f"it has: {', '.join(sides) or 'none'}.",
            )
        return list(self._outputs[name])

    def state(self, key: Any) -> dict[str, Any]:
        """The stored values of a key, by variable; a variable without a value is left out."""
        number = key_group_of(key, _KEY_GROUPS)
        stored = self._stored.get(number, StoredGroup())
        group = KeyGroup.empty(self._plan.layout, number)
        group.catch_up(BatchStore(stored), stored.head)
        return {
            variable.name: table[key]
            for variable, table in zip(group.layout.variables, group.tables, strict=True)
            if key in table
        }

    def crash(self) -> None:
        """Lose the worker: a new one reads back what was stored."""
        self._plan = StepPlan(
            _UID, deepcopy(self._process), self._spec, self._keys, self._schema, _KEY_GROUPS
        )
        self._runner = StepRunner(self._plan, HeapCache(_HEAP), _UID)

    def snapshot(self) -> Snapshot:
        """The committed state, to be restored here or in another harness."""
        return Snapshot(deepcopy(self._stored))

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot. Output that is there already stays."""
        self._stored = deepcopy(dict(snapshot.groups))
        self.crash()
