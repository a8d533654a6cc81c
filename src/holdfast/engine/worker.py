"""What runs in the Python workers: packing, the process step, unpacking.

These functions are pickled by reference, so a worker imports this module; keep its imports
light, they are paid for in every cold start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from holdfast.engine.loading import TimedBackend
from holdfast.engine.stores import store_for
from holdfast.engine.transport import carry_errors
from holdfast.state.backend import Backend, HeapBackend, RocksBackend
from holdfast.state.canonical import StoredStep
from holdfast.state.collector import end_of_task
from holdfast.state.heap import HeapCache
from holdfast.state.key_groups import KeyGroupIndex, spark_label
from holdfast.state.packing import from_wire, gather, pack, to_wire
from holdfast.state.plan import StepPlan
from holdfast.state.runner import StepRunner
from holdfast.state.times import EpochTime

WIRE_SCHEMA = pa.schema(
    [("kg", pa.int32()), ("place", pa.int64()), ("tag", pa.string()), ("block", pa.binary())]
)
WIRE_COLUMNS = (("kg", "int"), ("place", "bigint"), ("tag", "string"), ("block", "binary"))
WIRE_DDL = ", ".join(f"{name} {kind}" for name, kind in WIRE_COLUMNS)
"""A block between two hops: its key group, its place in the order of blocks, its output."""
INPUT_TAG = ""
BROADCAST_TAG = "!broadcast"
"""Blocks with these tags are a step's input; all others pass through it untouched."""
_WIRE_BATCH_BYTES = 32 * 1024**2

_indexes: dict[int, KeyGroupIndex] = {}
_labels: dict[int, int] = {}
"""Key group by Spark's label of it."""
_caches: dict[int, HeapCache] = {}
_runners: dict[str, tuple[str, StepRunner, TimedBackend]] = {}

ArrowBatches = Iterator[pa.RecordBatch]


def packer(
    keys: tuple[str, ...],
    schema: pa.Schema,
    key_groups: int,
    decode: Callable[[ArrowBatches], ArrowBatches] = iter,
) -> Callable[..., Any]:
    """For mapInArrow: rows to one block per key group. `decode` makes rows of what comes."""

    def pack_rows(batches: ArrowBatches) -> ArrowBatches:
        index = _indexes.setdefault(key_groups, KeyGroupIndex(key_groups))
        wire = _WireBatch()
        with carry_errors():
            fitted = (_fit(batch, schema) for batch in decode(batches))
            for group, block in pack(fitted, keys, index):
                wire.add(group, to_wire(block))
                if wire.size > _WIRE_BATCH_BYTES:
                    yield wire.take()
        if wire.groups:
            yield wire.take()
        end_of_task()

    return pack_rows


def state_reader(step: StoredStep) -> Callable[..., Any]:
    """For mapInArrow: entries of key groups, in the order of groups, to a row per key."""

    def read_rows(batches: ArrowBatches) -> ArrowBatches:
        group: int | None = None
        entries: dict[bytes, bytes] = {}
        for batch in batches:
            columns = (batch.column(at).to_pylist() for at in range(3))
            for found, key, value in zip(*columns, strict=True):
                if found != group:
                    if entries:
                        yield step.rows(entries)
                    group, entries = found, {}
                entries[key] = value
        if entries:
            yield step.rows(entries)
        end_of_task()

    return read_rows


def broadcaster(schema: pa.Schema, key_groups: int) -> Callable[..., Any]:
    """For mapInArrow: rows to one block for each of all key groups."""

    def pack_rows(batches: ArrowBatches) -> ArrowBatches:
        wire = _WireBatch(BROADCAST_TAG)
        fitted = (_fit(batch, schema) for batch in batches)
        for table in gather(fitted):
            block = to_wire(table.combine_chunks().to_batches()[0])
            for group in range(key_groups):
                wire.add(group, block)
            yield wire.take()
        end_of_task()

    return pack_rows


def repacker(
    source: str,
    keys: tuple[str, ...],
    schema: pa.Schema,
    key_groups: int,
    passed_on: tuple[str, ...],
) -> Callable[..., Any]:
    """For mapInArrow: one step's output straight to the next step's input.

    Blocks that sinks read are passed on as they are, so the step before need not be computed
    a second time for them.
    """
    pack_rows = packer(keys, schema, key_groups)

    def repack(batches: ArrowBatches) -> ArrowBatches:
        kept: list[pa.RecordBatch] = []

        def own() -> ArrowBatches:
            for batch in batches:
                tags = pa.compute.is_in(batch.column("tag"), pa.array(passed_on, pa.string()))
                passed = batch.filter(tags)
                if passed.num_rows:
                    kept.append(passed)
                yield from decoded_blocks(iter((batch,)), source, schema)

        for packed in pack_rows(own()):
            yield packed
            yield from kept
            kept.clear()
        yield from kept

    return repack


def unpacker(tag: str, schema: pa.Schema) -> Callable[..., Any]:
    """For mapInArrow: the blocks of one output back to rows."""

    def unpack_rows(batches: ArrowBatches) -> ArrowBatches:
        for table in gather(decoded_blocks(batches, tag, schema)):
            yield from table.combine_chunks().to_batches()
        end_of_task()

    return unpack_rows


def decoded_blocks(batches: ArrowBatches, tag: str, schema: pa.Schema) -> ArrowBatches:
    for batch in batches:
        tags = batch.column("tag").to_pylist()
        blocks = batch.column("block")
        for at, found in enumerate(tags):
            if found == tag:
                yield from_wire(blocks[at].as_py(), schema)


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays(
        [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ],
        schema=schema,
    )


class _WireBatch:
    """Input blocks on their way to the shuffle.

    The shuffle hands blocks over in any order, so each carries its place: the task it comes
    from, and its number there. An epoch that is run again is then processed in the same
    order, and gives the same rows.
    """

    def __init__(self, tag: str = INPUT_TAG) -> None:
        self._tag = tag
        context = TaskContext.get()
        assert context is not None
        self._place = context.partitionId() << 32
        self.groups: list[int] = []
        self._places: list[int] = []
        self._blocks: list[bytes] = []
        self.size = 0

    def add(self, group: int, block: bytes) -> None:
        self.groups.append(spark_label(group))
        self._places.append(self._place)
        self._blocks.append(block)
        self._place += 1
        self.size += len(block)

    def take(self) -> pa.RecordBatch:
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self.groups, pa.int32()),
                pa.array(self._places, pa.int64()),
                pa.array([self._tag] * len(self.groups), pa.string()),
                pa.array(self._blocks, pa.binary()),
            ],
            schema=WIRE_SCHEMA,
        )
        self.groups, self._places, self._blocks, self.size = [], [], [], 0
        return batch


def _epoch() -> int | None:
    """What Spark tells its tasks about the batch that they are part of."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return None if number is None else int(number)


def _in_order(blocks: list[tuple[int, bytes]], schema: pa.Schema) -> list[pa.RecordBatch]:
    return [from_wire(block, schema) for _, block in sorted(blocks)]


class KeyGroupProcessor(StatefulProcessor):
    """Spark calls this once per key group and batch, with a few rows: the group's blocks."""

    def __init__(
        self,
        plan: StepPlan,
        *,
        rocksdb: bool,
        owner: str,
        run_id: str,
        heap_limit: int,
        sizes: Any,
        initial_schema: pa.Schema | None = None,
    ) -> None:
        """`initial_schema`: of blocks of stored state, if a restore puts some in place."""
        self._initial_schema = initial_schema
        self._plan, self._rocksdb, self._owner, self._run_id = plan, rocksdb, owner, run_id
        self._heap_limit, self._sizes = heap_limit, sizes

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Runs on the driver too, where Spark only asks which state there is.
        self._store = store_for(handle, rocksdb=self._rocksdb)
        self._late_rows: dict[int, int] = {}
        """Late records by key group, of the groups that were visited in this epoch."""

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        with carry_errors():
            waiting: dict[str, list[tuple[int, bytes]]] = {INPUT_TAG: [], BROADCAST_TAG: []}
            for row in rows:
                if row.tag in waiting:
                    waiting[row.tag].append((row.place, row.block))
                else:
                    yield row
            records = _in_order(waiting[INPUT_TAG], self._plan.input_schema)
            rules = _in_order(waiting[BROADCAST_TAG], self._plan.broadcast_schema)
            if records or rules:
                yield from self._visit(key[0], records, timerValues, broadcast=rules)

    def handleInitialState(  # type: ignore[override]  # noqa: N802 - Spark's name
        self,
        key: Any,
        initialState: Row,  # noqa: N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        """Called while a restore puts stored state in place, with rows as for the input."""
        with carry_errors():
            if initialState.tag == BROADCAST_TAG:
                self._store.write_broadcast(bytes(initialState.block))
                return
            group, time = self._group_of(key[0]), self._epoch_time(timerValues)
            runner, _ = self._runner()
            block = from_wire(initialState.block, self._initial_schema)
            now = timerValues.getCurrentProcessingTimeInMs()
            waits = self._plan.time_mode == "ProcessingTime"
            result = runner.load(
                self._store, group, block, time, not_before=now + 1 if waits else 0
            )
            size = (result.live_keys, result.stored_bytes, 0, 0.0)
            self._sizes.add({(self._plan.uid, group): size})

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Spark calls this after all input, for key groups whose timer is due."""
        with carry_errors():
            fired = expiredTimerInfo.getExpiryTimeInMs()
            yield from self._visit(key[0], [], timerValues, fired=fired)

    def _visit(
        self,
        label: int,
        blocks: list[pa.RecordBatch],
        times: TimerValues,
        *,
        fired: int | None = None,
        broadcast: list[pa.RecordBatch] | None = None,
    ) -> Iterator[Row]:
        group = self._group_of(label)
        runner, backend = self._runner()
        result = runner.run(
            self._store,
            group,
            blocks,
            self._epoch_time(times),
            broadcast=broadcast or (),
            # Timers that were due have fired when the group's records came.
            fire=group not in self._late_rows,
            fired=fired,
        )
        late = self._late_rows[group] = self._late_rows.get(group, 0) + result.late_rows
        self._sizes.add(
            {
                (self._plan.uid, group): (
                    result.live_keys,
                    result.stored_bytes,
                    late,
                    backend.take_seconds(),
                )
            }
        )
        for at, (tag, batch) in enumerate(result.outputs):
            yield Row(kg=label, place=at, tag=f"{self._plan.uid}/{tag}", block=to_wire(batch))

    def _epoch_time(self, times: TimerValues) -> EpochTime:
        if self._plan.time_mode == "None":
            return EpochTime()
        watermark = times.getCurrentWatermarkInMs()
        return EpochTime(
            times.getCurrentProcessingTimeInMs() * 1000,
            # Spark says 0 before there is a watermark.
            watermark * 1000 if self._plan.event_time and watermark > 0 else None,
            _epoch(),
        )

    def _group_of(self, label: int) -> int:
        if label not in _labels:
            _labels.update((spark_label(at), at) for at in range(self._plan.key_groups))
        return _labels[label]

    def _runner(self) -> tuple[StepRunner, TimedBackend]:
        """The step's runner of this worker; made once per worker and run of the job."""
        known = _runners.pop(self._owner, None)
        if known is None or known[0] != self._run_id:
            backend = TimedBackend(self._backend())
            known = (self._run_id, StepRunner(self._plan, backend), backend)
        _runners[self._owner] = known
        return known[1:]

    def _backend(self) -> Backend:
        if self._rocksdb:
            return RocksBackend(self._plan.layout, self._plan.paged)
        cache = _caches.setdefault(self._heap_limit, HeapCache(self._heap_limit))
        return HeapBackend(cache, self._plan.layout, self._owner)

    def close(self) -> None:
        end_of_task()
