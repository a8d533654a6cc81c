"""A process step in plain Python.

It runs on the very same core as in a Spark worker: keys are cut into key groups, state is
encoded into blocks and logged, and what a crash leaves behind is what was stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import JobDefinitionError, shorten
from holdfast.event_time.build import windowed
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import declared_windowing
from holdfast.event_time.windows import Duration, Windows
from holdfast.savepoint.store import read_savepoint
from holdfast.state.backend import Backend, Group, HeapBackend, RocksBackend
from holdfast.state.heap import HeapCache
from holdfast.state.key_groups import KeyGroupIndex, key_group_of
from holdfast.state.packing import from_wire, pack, to_wire
from holdfast.state.pages import whole
from holdfast.state.plan import LatePolicy, StepPlan, check_broadcast, check_times
from holdfast.state.process import MAIN, KeyedProcess, inspect_process
from holdfast.state.rows import row_tuple, rows_to_batch
from holdfast.state.runner import StepRunner
from holdfast.state.schema import SchemaLike, parse_columns
from holdfast.state.times import EpochTime, micros, moment
from holdfast.state.values import decode
from holdfast.testing.savepoints import stored_blocks, stored_broadcast
from holdfast.testing.stores import BatchStore, StoredGroup
from holdfast.types import parse_duration

Outputs = dict[str, list[tuple[Any, ...]]]
"""Rows by output tag."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Where a harness's clock stands at first."""
_KEY_GROUPS = 64
_UID = "step"
_HEAP = 1 << 30


@dataclass(frozen=True)
class Snapshot:
    """The committed state at one moment."""

    groups: Mapping[int, StoredGroup]
    now: datetime
    watermark: datetime | None
    epochs: int


class Harness:
    """Runs a process with rows that a test pushes.

    >>> harness = Harness(ComputeDiffs(), "user string, diff bigint", key="user")
    >>> harness.push(("ann", 3), ("ann", 4))
    [('ann', 3), ('ann', 7)]
    >>> harness.state("ann")
    {'total': 7}

    Each `push` is an epoch: if the process raises, the error is the one a job would end with,
    and the state is as it was before. `crash` loses the worker and all that it kept in memory.

    `event_time` names the column that carries event time. The watermark moves only with
    `advance_watermark`, or, where a `delay` is given, as in a job: after each epoch it follows
    the largest time seen, less the delay. The clock moves only with `advance_time`.

    A :class:`~holdfast.WindowProcess` is run with its `window`, `allowed_lateness` and `early`,
    as ``keyed.window(…)`` takes them.
    """

    def __init__(
        self,
        process: KeyedProcess | WindowProcess,
        schema: SchemaLike,
        *,
        key: str | tuple[str, ...],
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        late: LatePolicy | None = None,
        window: Windows | None = None,
        allowed_lateness: Duration = 0,
        early: Duration | None = None,
        broadcast: SchemaLike | None = None,
        backend: Literal["heap", "rocksdb"] = "heap",
    ) -> None:
        self._schema = parse_columns(schema, "schema of the input")
        self._keys = (key,) if isinstance(key, str) else tuple(key)
        for name in (*self._keys, *([event_time] if event_time else [])):
            if name not in self._schema.names:
                raise JobDefinitionError(
                    "KEY_NOT_FOUND",
                    f"{name!r} is not a column of the input.",
                    fix=f"use columns of the schema: {', '.join(self._schema.names)}.",
                )
        if isinstance(process, WindowProcess):
            windowing = declared_windowing(window, allowed_lateness, early)
            policy: Any = late
            process = windowed(
                process,
                windowing,
                uid=_UID,
                schema=self._schema,
                event_time=event_time,
                late=policy,
            )
            late = "process"
        elif window is not None:
            raise JobDefinitionError(
                "WRONG_ARGUMENT",
                f"the harness has window={window} and {shorten(process)}.",
                fix="pass a WindowProcess, or leave the window out.",
            )
        # Kept as it was given: every worker gets a copy, as in a job.
        self._process, self._spec = process, inspect_process(process)
        self._event_time = event_time
        self._delay = None if delay is None else parse_duration(delay, "delay")
        self._backend = backend
        self._rules = (
            None if broadcast is None else parse_columns(broadcast, "schema of the broadcast")
        )
        check_broadcast(_UID, self._spec, broadcast is not None)
        self._late = check_times(_UID, self._spec, event_time, late)
        self._stored: dict[int, StoredGroup] = {}
        self._index = KeyGroupIndex(_KEY_GROUPS)
        self.now = START
        self.watermark: datetime | None = None
        self._epochs = 0
        self.late_rows = 0
        """How many late records there were, whatever became of them."""
        self.crash()
        self._outputs: Outputs = {tag: [] for tag in self._plan.outputs}

    def push(self, *rows: Any) -> list[tuple[Any, ...]]:
        """Process rows (tuples, or dicts by column name) as one epoch; its main output."""
        tuples = [row_tuple(row, self._schema, "a pushed row") for row in rows]
        batch = rows_to_batch(tuples, self._schema)
        made = self._epoch(batch)
        if self._delay is not None and self._event_time is not None:
            self._follow(batch.column(self._event_time), self._delay)
        return made

    def broadcast(self, *rows: Any) -> list[tuple[Any, ...]]:
        """Send rows of the broadcast stream as one epoch without records; its main output."""
        if self._rules is None:
            raise JobDefinitionError(
                "BROADCAST_MISSING",
                "the harness has no broadcast stream.",
                fix='name its columns: Harness(…, broadcast="name string, limit bigint").',
            )
        tuples = [row_tuple(row, self._rules, "a broadcast row") for row in rows]
        return self._epoch(None, [rows_to_batch(tuples, self._rules)])

    def advance_watermark(self, to: datetime) -> list[tuple[Any, ...]]:
        """Move the watermark and run an epoch without records; its main output."""
        if self._event_time is None:
            raise JobDefinitionError(
                "EVENT_TIME_MISSING",
                "the harness has no event time.",
                fix='name its column: Harness(…, event_time="ts").',
            )
        if self.watermark is not None and to < self.watermark:
            raise ValueError(f"the watermark is at {self.watermark} and cannot go back to {to}")
        self.watermark = to
        return self._epoch(None)

    def advance_time(self, by: str | timedelta) -> list[tuple[Any, ...]]:
        """Move the clock and run an epoch without records; its main output."""
        self.now += parse_duration(by, "time to advance")
        return self._epoch(None)

    def _follow(self, times: pa.Array, delay: timedelta) -> None:
        latest = pc.max(times).as_py()
        if latest is not None:
            reached = latest.replace(tzinfo=UTC) - delay
            self.watermark = max(self.watermark or reached, reached)

    def _epoch(
        self, batch: pa.RecordBatch | None, rules: Sequence[pa.RecordBatch] = ()
    ) -> list[tuple[Any, ...]]:
        return self.run_epoch(batch, rules)[MAIN]

    def run_epoch(
        self, batch: pa.RecordBatch | None, rules: Sequence[pa.RecordBatch] = ()
    ) -> Outputs:
        """Run an epoch with a batch of records and of broadcast rows; its output by tag."""
        begun = {number: BatchStore(group) for number, group in self._stored.items()}
        if rules:  # they reach every key group
            begun = {n: begun.get(n, BatchStore(StoredGroup())) for n in range(_KEY_GROUPS)}
        blocks: dict[int, list[pa.RecordBatch]] = {number: [] for number in begun}
        if batch is not None:
            for number, block in pack([batch], self._keys, self._index):
                begun.setdefault(number, BatchStore(StoredGroup()))
                sent = from_wire(to_wire(block), self._schema)
                blocks.setdefault(number, []).append(sent)
        outputs: Outputs = {tag: [] for tag in self._outputs}
        late_rows = 0
        reached = self.watermark
        watermark = None if reached is None else micros(reached)
        time = EpochTime(micros(self.now), watermark, self._epochs)
        for number, store in begun.items():
            result = self._runner.run(store, number, blocks[number], time, broadcast=rules)
            late_rows += result.late_rows
            for tag, made in result.outputs:
                columns = [decode(column) for column in made.columns]
                outputs[tag].extend(zip(*columns, strict=True))
        # Reached only if all went well: the epoch is committed.
        self._stored = {number: store.group for number, store in begun.items()}
        self._epochs += 1
        self.late_rows += late_rows
        for tag, found in outputs.items():
            self._outputs[tag].extend(found)
        return outputs

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The columns of every output, by name; "main" is the main one."""
        return self._plan.outputs

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
        group = self._group(key)
        return {
            state.name: whole(group.tables[at][key])
            for state, at in self._plan.state_places
            if key in group.tables[at]
        }

    def timers(self, key: Any) -> list[datetime]:
        """The pending timers of a key, earliest first."""
        group = self._group(key)
        times = [
            time
            for at in self._plan.timer_places.values()
            for time in group.tables[at].get(key, ())
        ]
        return [moment(time) for time in sorted(times)]

    def _group(self, key: Any) -> Group:
        number = key_group_of(key, _KEY_GROUPS)
        store = BatchStore(self._stored.get(number, StoredGroup()))
        group = self._new_backend().begin(store, number)
        group.ensure([key])
        return group

    def _new_backend(self) -> Backend:
        if self._backend == "rocksdb":
            return RocksBackend(self._plan.layout, self._plan.paged)
        return HeapBackend(HeapCache(_HEAP), self._plan.layout, _UID)

    def crash(self) -> None:
        """Lose the worker: a new one reads back what was stored."""
        self._plan = StepPlan(
            _UID,
            deepcopy(self._process),
            self._spec,
            self._keys,
            self._schema,
            _KEY_GROUPS,
            event_time=self._event_time,
            late=self._late,
            broadcast_schema=self._rules,
        )
        self._runner = StepRunner(self._plan, self._new_backend())

    def snapshot(self) -> Snapshot:
        """The committed state, to be restored here or in another harness."""
        return Snapshot(deepcopy(self._stored), self.now, self.watermark, self._epochs)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot. Output that is there already stays."""
        self._stored = deepcopy(dict(snapshot.groups))
        self.now, self.watermark = snapshot.now, snapshot.watermark
        self._epochs = snapshot.epochs
        self.crash()

    def restore_savepoint(self, path: str | Path, uid: str) -> None:
        """Go on from the state that a step of a real job had, in a canonical savepoint.

        The watermark is that of the savepoint; the clock stays where it is.
        """
        place = Path(path)
        self._stored = {}
        self.crash()
        time = EpochTime(micros(self.now), None)
        rules = stored_broadcast(place, uid)
        loaded: dict[int, BatchStore] = {}
        for number, block in stored_blocks(place, uid, self._keys, self._index):
            # Blocks of one group may come from several files.
            store = BatchStore(loaded[number].group if number in loaded else StoredGroup())
            self._runner.load(store, number, block, time)
            loaded[number] = store
        if rules is not None:
            for number in range(_KEY_GROUPS):
                store = BatchStore(loaded[number].group if number in loaded else StoredGroup())
                store.write_broadcast(rules)
                loaded[number] = store
        self._stored = {number: store.group for number, store in loaded.items()}
        manifest = read_savepoint(place).manifest
        self.watermark, self._epochs = manifest.watermark, manifest.epoch + 1
        self.crash()
