"""Runs a :class:`KeyedProcess` over the blocks of a key group. Plain Python: the Spark
adapter, the test kit and the property tests all drive this one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import DataError, HoldfastError, shorten
from holdfast.state.backend import Backend, Group
from holdfast.state.broadcast import Broadcasts
from holdfast.state.canonical import fill
from holdfast.state.key_groups import canonical_bytes
from holdfast.state.late import LATE, explain_batch
from holdfast.state.outputs import Batches, OutputEncoder
from holdfast.state.pages import whole
from holdfast.state.plan import StepPlan
from holdfast.state.process import Context
from holdfast.state.records import Record, RecordMaker
from holdfast.state.schema import type_ddl
from holdfast.state.timers import Timer, Timers
from holdfast.state.times import EVENT, NO_TIME, PROCESSING, Clock, EpochTime, moment
from holdfast.state.trouble import user_error
from holdfast.state.ttl import earliest, sweep
from holdfast.state.values import KeyColumn, decode_keys, encode, keys_are_values
from holdfast.state.wake import next_timer, wanted_wake


@dataclass(frozen=True)
class GroupResult:
    """What one batch did in one key group."""

    outputs: Batches
    live_keys: int
    stored_bytes: int
    late_rows: int


class StepRunner:
    """Runs one step in one worker. Key groups pass through it one after another."""

    def __init__(self, plan: StepPlan, backend: Backend) -> None:
        self._plan, self._backend = plan, backend
        self._layout = plan.layout
        self._timers: dict[Clock, int] = plan.timer_places
        self._context = Context(plan.event_time)
        self._context.timers = Timers(self._context, self._timers)
        self._process = plan.process
        self._handles = [(state.handle(self._context), at) for state, at in plan.state_places]
        self._process.__dict__.update(
            (state.name, handle)
            for (state, _), (handle, _) in zip(plan.state_places, self._handles, strict=True)
        )
        self._broadcasts = Broadcasts(plan.spec.broadcasts)
        self._process.__dict__.update(
            (handle.state.name, handle) for handle in self._broadcasts.handles
        )
        self._make = RecordMaker(tuple(plan.input_schema.names))
        self._encoder = OutputEncoder(plan.uid, type(plan.process).__name__, plan.outputs)
        self._guarded(self._process.open)
        self._process.__dict__["_running"] = True

    def run(
        self,
        store: Any,
        number: int,
        blocks: Sequence[pa.RecordBatch],
        time: EpochTime = NO_TIME,
        *,
        broadcast: Sequence[pa.RecordBatch] = (),
        fire: bool = True,
        fired: int | None = None,
    ) -> GroupResult:
        """Let time pass in key group `number`, process its blocks, store what changed.

        Broadcast rows come first: the rules of an epoch are the same for all its records. The
        watermark of an epoch was known before its records came, so timers come second. A
        group may be visited twice in an epoch: `fire` says whether timers are to fire, `fired`
        is Spark's timer that led to the visit.
        """
        group = self._backend.begin(store, number)
        self._context.begin(time)
        self._context.timers.attach(group)
        for handle, at in self._handles:
            handle.attach(group, at)
        self._broadcast(store, broadcast)
        self._expire(group, time)
        outputs = self._fire(group, time) if fire else []
        on_time, late = self._split_late(blocks, time)
        outputs += self._run(on_time, group)
        if self._plan.late == "side":
            explained = (explain_batch(block, self._times(block), time) for block in late)
            outputs += [(LATE, block) for block in explained]
        wake = next_timer(group.wake, self._wanted_wake(group, time), fired)
        self._end(group, store, wake)
        late_rows = sum(block.num_rows for block in late) + self._context.late_rows
        return GroupResult(outputs, group.live_keys, group.stored_bytes, late_rows)

    def load(
        self,
        store: Any,
        number: int,
        block: pa.RecordBatch,
        time: EpochTime = NO_TIME,
        *,
        not_before: int = 0,
    ) -> GroupResult:
        """Put stored state of keys that are not there yet into a key group.

        Spark is to look at it again when something is due, but not before `not_before`
        (milliseconds): nothing may fire while state is being put in place.
        """
        group = self._backend.begin(store, number)
        fill(group, self._layout, block)
        wanted = self._wanted_wake(group, time)
        wake = next_timer(group.wake, wanted and max(wanted, not_before), None)
        self._end(group, store, wake)
        return GroupResult([], group.live_keys, group.stored_bytes, 0)

    def _broadcast(self, store: Any, blocks: Sequence[pa.RecordBatch]) -> None:
        if not self._plan.spec.broadcasts:
            return
        self._broadcasts.load(store.read_broadcast())
        if blocks:
            store.write_broadcast(self._broadcasts.change(lambda: self._apply(blocks)))

    def _apply(self, blocks: Sequence[pa.RecordBatch]) -> None:
        assert self._plan.broadcast_schema is not None
        make = RecordMaker(tuple(self._plan.broadcast_schema.names))
        self._context.key = None
        for block in blocks:
            for row in make.records(block, {}):
                try:
                    self._process.on_broadcast(row, self._context)
                except Exception as error:
                    raise self._user_error(error, None, row) from error

    # Time

    def _expire(self, group: Group, time: EpochTime) -> None:
        """Remove what has outlived its TTL, before user code could see it."""
        for values_at, expiries_at, clock in self._plan.expiries:
            values, expiries = group.tables[values_at], group.tables[expiries_at]
            queue, reading = group.queues[expiries_at], time.of(clock)
            due = queue.take_due(reading)
            group.ensure(due)
            for key in due:
                if key not in expiries:
                    continue
                if earliest(expiries[key]) <= reading:
                    group.touch(key)
                    left, until = sweep(values[key], expiries[key], reading)
                    if left is None:
                        del values[key], expiries[key]
                        continue
                    values[key], expiries[key] = left, until
                queue.note(earliest(expiries[key]), key)

    def _fire(self, group: Group, time: EpochTime) -> Batches:
        due: list[tuple[int, Clock, Any]] = []
        for clock, at in self._timers.items():
            reading, queue = time.of(clock), group.queues[at]
            keys = queue.take_due(reading)
            group.ensure(keys)
            for key in keys:
                pending = group.tables[at].get(key, ())
                due += [(when, clock, key) for when in pending if when <= reading]
                if pending and pending[0] > reading:
                    queue.keep(pending[0], key)
        if not due:
            return []
        # The same order in a repeated epoch, whichever worker it comes to.
        due.sort(key=lambda found: (found[0], found[1], canonical_bytes(found[2])))
        context = self._context
        rows: list[Any] = []
        ends: list[int] = []
        for when, clock, key in due:
            context.key, context.event_time = key, when if clock == EVENT else None
            if context.timers.take(clock, when):
                timer = Timer(moment(when), clock)
                try:
                    rows.extend(self._process.on_timer(timer, context) or ())
                except Exception as error:
                    raise self._user_error(error, key, timer) from error
            ends.append(len(rows))
        self._note_pending(group, due)

        def origin(output: int) -> tuple[Any, Any]:
            when, clock, key = due[next(i for i, end in enumerate(ends) if end > output)]
            return key, Timer(moment(when), clock)

        return self._encoder.rows(rows, origin)

    def _note_pending(self, group: Group, fired: list[tuple[int, Clock, Any]]) -> None:
        """Have the keys looked at again when their next timers are due."""
        for _, clock, key in fired:
            at = self._timers[clock]
            pending = group.tables[at].get(key)
            if pending:
                group.queues[at].keep(pending[0], key)

    def _split_late(
        self, blocks: Sequence[pa.RecordBatch], time: EpochTime
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Late records apart from the others, unless the process wants them all."""
        if (
            self._plan.event_time is None
            or time.watermark is None
            or self._plan.late == "process"
        ):
            return list(blocks), []
        on_time, late = [], []
        for block in blocks:
            mask = pc.fill_null(pc.less_equal(self._times(block), time.watermark), False)
            if not pc.any(mask).as_py():
                on_time.append(block)
                continue
            late.append(block.filter(mask))
            on_time.append(block.filter(pc.invert(mask)))
        return on_time, late

    def _times(self, block: pa.RecordBatch) -> pa.Array:
        return block.column(self._plan.event_time).cast(pa.int64())

    def _wanted_wake(self, group: Group, time: EpochTime) -> int | None:
        nexts: dict[Clock, list[int]] = {EVENT: [], PROCESSING: []}
        for variable, queue in zip(self._layout.variables, group.queues, strict=True):
            due = queue.next() if variable.clock is not None else None
            if variable.clock is not None and due is not None:
                nexts[variable.clock].append(due)
        event, processing = (min(nexts[clock], default=None) for clock in (EVENT, PROCESSING))
        return wanted_wake(event, processing, self._plan.time_mode, time)

    # Records

    def _run(self, blocks: list[pa.RecordBatch], group: Group) -> Batches:
        if not self._plan.spec.batched:
            return [output for block in blocks for output in self._run_records(block, group)]
        table = pa.Table.from_batches(blocks, self._plan.input_schema)
        if not table.num_rows:
            return []
        column = self._plan.event_time
        if column is not None:
            self._context.event_time = pc.max(table.column(column).cast(pa.int64())).as_py()
        keys = KeyColumn([table.column(name) for name in self._plan.keys])
        if self._backend.reads_by_key:
            group.ensure(keys)
        self._context.key = None
        return self._encoder.table(
            self._guarded(lambda: self._process.process_batch(keys, table, self._context))
        )

    def _run_records(self, block: pa.RecordBatch, group: Group) -> Batches:
        keys = decode_keys([block.column(name) for name in self._plan.keys])
        if self._backend.reads_by_key:
            group.ensure(keys)
        records = self._records_of(block, keys)
        context, process = self._context, self._process.process
        rows: list[Any] = []
        ends: list[int] = []
        extend, end = rows.extend, ends.append
        times = self._event_times(block)
        try:
            for key, record in zip(keys, records, strict=True):
                context.key = key
                if times is not None:
                    context.event_time = next(times)
                result = process(record, context)
                if result is not None:
                    extend(result)
                end(len(rows))
        except Exception as error:
            raise self._user_error(error, key, record) from error

        def origin(output: int) -> tuple[Any, Any]:
            at = next(i for i, end in enumerate(ends) if end > output)
            return keys[at], next(self._make.records(block.slice(at, 1), {}))

        return self._encoder.rows(rows, origin)

    def _event_times(self, block: pa.RecordBatch) -> Iterator[int | None] | None:
        column = self._plan.event_time
        if column is None:
            return None
        times: list[int | None] = block.column(column).cast(pa.int64()).to_pylist()
        return iter(times)

    def _records_of(self, block: pa.RecordBatch, keys: list[Any]) -> Iterator[Record]:
        """The block's records; a key column that was just decoded is not decoded again."""
        name = self._plan.keys[0]
        shared = len(self._plan.keys) == 1 and keys_are_values(block.schema.field(name).type)
        return self._make.records(block, {name: keys} if shared else {})

    # Storing, and what can go wrong

    def _end(self, group: Group, store: Any, wake: int | None) -> None:
        try:
            self._backend.end(group, store, wake)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise self._bad_state(group, error) from error

    def _bad_state(self, group: Group, error: Exception) -> HoldfastError:
        """Find the value that could not be stored."""
        for variable, table in zip(self._layout.variables, group.tables, strict=True):
            for key in group.changed:
                try:
                    encode([whole(table.get(key))], variable.kind)
                except (TypeError, ValueError, OverflowError, pa.ArrowException) as why:
                    return DataError(
                        "STATE_VALUE_DOES_NOT_FIT",
                        f"step {self._plan.uid!r}, key {shorten(key)}: state "
                        f"{variable.name!r} became {shorten(table.get(key))}, which is no "
                        f"{type_ddl(variable.kind)} ({why}).",
                        fix="declare a wider type for the state, or check the value.",
                        step=self._plan.uid,
                        key=shorten(key),
                    )
        return DataError(
            "STATE_NOT_STORED",
            f"step {self._plan.uid!r}: the state could not be encoded: {error}.",
            fix="report this with the traceback.",
        )

    def _guarded(self, call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            raise self._user_error(error, None, None) from error

    def _user_error(self, error: Exception, key: Any, cause: Any) -> HoldfastError:
        return user_error(error, self._plan.uid, self._process, key, cause)
