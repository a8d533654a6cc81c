"""The key-group engine against a plain dict.

Workers come and go, keep state of batches that were never committed, drop key groups for
want of memory, and take turns. Whatever they do, the committed log must decode to what a
dict holds that saw the committed batches only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import holdfast as hf
from holdfast.errors import UserCodeError
from holdfast.state.backend import HeapBackend
from holdfast.state.heap import HeapCache, KeyGroup
from holdfast.state.key_groups import KeyGroupIndex
from holdfast.state.packing import from_wire, pack, to_wire
from holdfast.state.plan import StepPlan
from holdfast.state.process import MAIN, inspect_process
from holdfast.state.runner import StepRunner
from holdfast.state.schema import parse_columns
from holdfast.state.values import decode_keys
from holdfast.testing.stores import BatchStore, StoredGroup

KEY_GROUPS = 3
STEP = "everything"
INPUT = parse_columns("name string, number double, op string, n bigint, text string")

NAMES = (None, "", "ann", "Ærøskøbing", "\U0001f980")
NUMBERS = (None, 0.0, -0.0, 1.5, math.nan)
OPS = (
    "value", "list", "map", "reduce", "aggregate",
    "clear value", "clear list", "clear map", "clear reduced", "clear aggregate", "clear",
    "unmap", "relist", "overwrite", "read",
)  # fmt: skip

Row = tuple[Any, Any, str, int, str]
ModelKey = tuple[Any, Any]


class Everything(hf.KeyedProcess):
    """Uses every kind of state; which one depends on the record."""

    total = hf.ValueState("bigint", default=7)
    items = hf.ListState("string")
    seen = hf.MapState("string", "array<bigint>")
    longest = hf.ReducingState("string", lambda a, b: b if len(b) > len(a) else a)
    mean = hf.AggregatingState(
        "total double, n bigint",
        create=lambda: (0.0, 0),
        add=lambda acc, x: (acc[0] + x, acc[1] + 1),
        result=lambda acc: acc.total / acc.n,
    )
    output = "text string"

    def process(self, record: Any, ctx: hf.Context) -> Iterable[Any]:
        n, text = record.n, record.text
        match record.op:
            case "value":
                self.total.value += n
            case "overwrite":
                self.total.value = n
            case "list":
                self.items.add(text)
            case "relist":
                self.items.update([text] * (n % 3))
            case "map":
                self.seen[text] = [*self.seen.get(text, []), n]
            case "unmap":
                self.seen.pop(text)
            case "reduce":
                self.longest.add(text)
            case "aggregate":
                self.mean.add(n)
            case "clear value":
                self.total.value = None
            case "clear list":
                self.items.clear()
            case "clear map":
                for entry in self.seen:
                    del self.seen[entry]
            case "clear reduced":
                self.longest.clear()
            case "clear aggregate":
                self.mean.clear()
            case "clear":
                for handle in (self.total, self.items, self.seen, self.longest, self.mean):
                    handle.clear()
            case "fail":
                raise RuntimeError("lost")
        # What is handed out must be a copy: changing it must not reach the state.
        self.items.get().append("not stored")
        for numbers in self.seen.values():
            numbers.append(-1)
        yield (
            repr(
                (
                    self.total.value,
                    self.items.get(),
                    dict(self.seen.items()),
                    self.longest.value,
                    self.mean.value,
                )
            ),
        )


@dataclass
class Expected:
    """The state of one key, in plain Python."""

    total: int | None = None
    items: list[str] = field(default_factory=list)
    seen: dict[str, list[int]] = field(default_factory=dict)
    longest: str | None = None
    numbers: list[int] = field(default_factory=list)

    def apply(self, op: str, n: int, text: str) -> str:
        match op:
            case "value":
                self.total = (7 if self.total is None else self.total) + n
            case "overwrite":
                self.total = n
            case "list":
                self.items.append(text)
            case "relist":
                self.items = [text] * (n % 3)
            case "map":
                self.seen.setdefault(text, []).append(n)
            case "unmap":
                self.seen.pop(text, None)
            case "reduce":
                longer = self.longest is None or len(text) > len(self.longest)
                self.longest = text if longer else self.longest
            case "aggregate":
                self.numbers.append(n)
            case "clear value":
                self.total = None
            case "clear list":
                self.items = []
            case "clear map":
                self.seen = {}
            case "clear reduced":
                self.longest = None
            case "clear aggregate":
                self.numbers = []
            case "clear":
                self.__init__()  # type: ignore[misc]
        mean = sum(self.numbers) / len(self.numbers) if self.numbers else None
        total = 7 if self.total is None else self.total
        return repr((total, self.items, self.seen, self.longest, mean))

    @property
    def is_empty(self) -> bool:
        return self == Expected()

    def as_stored(self) -> tuple[Any, ...]:
        """One entry per state variable; None where the key has none."""
        accumulator = (float(sum(self.numbers)), len(self.numbers)) if self.numbers else None
        return (self.total, self.items or None, self.seen or None, self.longest, accumulator)


def model_key(name: Any, number: Any) -> ModelKey:
    """Keys that Spark calls equal, made equal for Python: all NaNs are one key."""
    is_nan = isinstance(number, float) and math.isnan(number)
    return name, "NaN" if is_nan else number


class Worker:
    """A Python worker process: its cache outlives tasks, committed or not."""

    def __init__(self, limit: int) -> None:
        process = Everything()
        plan = StepPlan(
            STEP, process, inspect_process(process), ("name", "number"), INPUT, KEY_GROUPS
        )
        self.cache = HeapCache(limit)
        self.layout = plan.layout
        self.runner = StepRunner(plan, HeapBackend(self.cache, plan.layout, STEP))
        self._index = KeyGroupIndex(KEY_GROUPS)

    def blocks_of(self, rows: Sequence[Row]) -> dict[int, list[pa.RecordBatch]]:
        """The shuffle: rows cut by key group, over the wire and back."""
        batch = pa.RecordBatch.from_pylist(
            [dict(zip(INPUT.names, row, strict=True)) for row in rows], schema=INPUT
        )
        middle = len(rows) // 2
        blocks: dict[int, list[pa.RecordBatch]] = {}
        for half in (batch.slice(0, middle), batch.slice(middle)):
            for number, block in pack([half], ("name", "number"), self._index):
                blocks.setdefault(number, []).append(from_wire(to_wire(block), INPUT))
        return blocks


def key_of(row: Row) -> ModelKey:
    return model_key(row[0], row[1])


ROWS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(NUMBERS),
        st.sampled_from(OPS),
        st.integers(-(2**40), 2**40),
        st.text("abé", max_size=4),
    ),
    max_size=12,
)
WORKERS = st.integers(0, 3)
LIMITS = st.sampled_from((0, 600, 10**9))
"""Nothing stays in the cache, a part of it stays, everything stays."""


class KeyGroupMachine(RuleBasedStateMachine):
    workers: list[Worker]

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, StoredGroup] = {n: StoredGroup() for n in range(KEY_GROUPS)}
        self.model: dict[ModelKey, Expected] = {}
        self.savepoint: tuple[dict[int, StoredGroup], dict[ModelKey, Expected]] = ({}, {})
        self.lost: list[Row] = []
        self.compactions = 0
        self.take_savepoint()

    @initialize(limits=st.lists(LIMITS, min_size=4, max_size=4))
    def start_workers(self, limits: list[int]) -> None:
        self.workers = [Worker(limit) for limit in limits]

    # What can happen to a batch

    @rule(worker=WORKERS, rows=ROWS)
    def run_and_commit(self, worker: int, rows: list[Row]) -> None:
        results = {}
        answers: dict[ModelKey, list[str]] = {}
        for number, blocks in self.workers[worker].blocks_of(rows).items():
            store = BatchStore(self.stored[number])
            result = self.workers[worker].runner.run(store, number, blocks)
            results[number] = store.group
            self._collect(answers, blocks, result.outputs)
            before, after = self.stored[number].head, store.group.head
            if before is not None and after.base != before.base:
                self.compactions += 1
                assert list(store.group.blocks) == [after.sequence]
        self.stored |= results
        assert answers == self._apply_to_model(rows)

    @rule(worker=WORKERS, rows=ROWS, groups=st.integers(0, KEY_GROUPS))
    def run_and_lose(self, worker: int, rows: list[Row], groups: int) -> None:
        """The task dies after it has finished some key groups, which the worker keeps."""
        for number, blocks in list(self.workers[worker].blocks_of(rows).items())[:groups]:
            self.workers[worker].runner.run(BatchStore(self.stored[number]), number, blocks)
        self.lost = rows

    @rule(worker=WORKERS, rows=ROWS.filter(bool), data=st.data())
    def run_and_raise(self, worker: int, rows: list[Row], data: st.DataObject) -> None:
        """User code raises in the middle of a key group."""
        at = data.draw(st.integers(0, len(rows) - 1), label="failing record")
        name, number, _, n, text = rows[at]
        failing = [*rows[:at], (name, number, "fail", n, text), *rows[at:]]
        with pytest.raises(UserCodeError, match="USER_FUNCTION_FAILED"):
            for group, blocks in self.workers[worker].blocks_of(failing).items():
                self.workers[worker].runner.run(BatchStore(self.stored[group]), group, blocks)
        self.lost = rows

    @precondition(lambda self: self.lost)
    @rule(worker=WORKERS)
    def run_lost_batch_again(self, worker: int) -> None:
        rows, self.lost = self.lost, []
        self.run_and_commit(worker, rows)

    @rule(workers=st.lists(WORKERS, min_size=1, max_size=3), rows=ROWS.filter(bool))
    def many_small_batches(self, workers: list[int], rows: list[Row]) -> None:
        """Few keys, again and again: the log outgrows the state and is compacted."""
        for turn in range(60):
            self.run_and_commit(workers[turn % len(workers)], rows[turn % 3 :] or rows)

    @rule(worker=WORKERS, clear=st.booleans())
    def many_keys(self, worker: int, clear: bool) -> None:
        op = "clear" if clear else "value"
        self.run_and_commit(worker, [(f"key {i}", 1.5, op, i, "") for i in range(200)])

    @rule(worker=WORKERS)
    def clear_everything(self, worker: int) -> None:
        rows: list[Row] = [
            (name, math.nan if number == "NaN" else number, "clear", 0, "")
            for name, number in self.model
        ]
        self.run_and_commit(worker, rows)
        assert not self.model

    # What can happen around it

    @rule(worker=WORKERS, limit=LIMITS)
    def restart_worker(self, worker: int, limit: int) -> None:
        self.workers[worker] = Worker(limit)

    @rule()
    def take_savepoint(self) -> None:
        self.savepoint = deepcopy((self.stored, self.model))

    @rule()
    def roll_back(self) -> None:
        """Back to an older commit, with workers that still hold the newer state."""
        self.stored, self.model = deepcopy(self.savepoint)

    # What must always hold

    @invariant()
    def committed_state_equals_model(self) -> None:
        decoded: dict[ModelKey, tuple[Any, ...]] = {}
        live = 0
        for number, stored in self.stored.items():
            group = _caught_up(KeyGroup.empty(LAYOUT, number), stored)
            live += group.live_keys
            decoded |= _states_in(group)
        assert decoded == {key: state.as_stored() for key, state in self.model.items()}
        assert live == len(self.model)

    @invariant()
    def any_worker_could_go_on(self) -> None:
        """What a worker holds, brought up to date, is what a fresh one would load."""
        expected = {key: state.as_stored() for key, state in self.model.items()}
        for worker in getattr(self, "workers", ()):
            for cached in worker.cache._groups.values():
                tables = [dict(table) for table in cached.tables]
                group = KeyGroup(LAYOUT, cached.number, tables, cached.head, cached.tag)
                states = _states_in(_caught_up(group, self.stored[cached.number]))
                assert states.items() <= expected.items()
                assert len(states) == group.live_keys

    @invariant()
    def log_is_described_by_its_head(self) -> None:
        for stored in self.stored.values():
            if stored.head is None:
                assert not stored.blocks
                continue
            assert sorted(stored.blocks) == list(stored.head.all_blocks())
            keys = {number: _keys_in(block) for number, block in stored.blocks.items()}
            assert stored.head.log_rows == sum(map(len, keys.values()))
            assert stored.head.log_bytes == sum(map(len, stored.blocks.values()))
            # At most 2.5 rows per live key and 256 more, in at most as many blocks.
            bound = 2.5 * stored.head.live_keys + 256
            assert len(stored.blocks) <= 2 or stored.head.log_rows <= bound

    @invariant()
    def compacted_blocks_hold_live_keys_only(self) -> None:
        for stored in self.stored.values():
            if stored.head and len(stored.blocks) == 1 and stored.head.sequence > 0:
                (block,) = stored.blocks.values()
                assert set(_keys_in(block)) <= set(self.model)

    @invariant()
    def caches_stay_within_their_limits(self) -> None:
        for worker in getattr(self, "workers", ()):
            groups = worker.cache._groups.values()
            assert worker.cache.used == sum(group.memory for group in groups)
            assert worker.cache.used <= worker.cache.limit or len(worker.cache) == 1

    def _apply_to_model(self, rows: Sequence[Row]) -> dict[ModelKey, list[str]]:
        answers: dict[ModelKey, list[str]] = {}
        for row in rows:
            state = self.model.setdefault(key_of(row), Expected())
            answers.setdefault(key_of(row), []).append(state.apply(*row[2:]))
        self.model = {key: state for key, state in self.model.items() if not state.is_empty}
        return answers

    @staticmethod
    def _collect(
        answers: dict[ModelKey, list[str]],
        blocks: Sequence[pa.RecordBatch],
        outputs: Sequence[tuple[str, pa.RecordBatch]],
    ) -> None:
        keys = [
            model_key(*key)
            for block in blocks
            for key in decode_keys([block.column("name"), block.column("number")])
        ]
        texts = [text for _, batch in outputs for text in batch.column("text").to_pylist()]
        assert {tag for tag, _ in outputs} <= {MAIN}
        for key, text in zip(keys, texts, strict=True):
            answers.setdefault(key, []).append(text)


LAYOUT = Worker(0).layout


def _caught_up(group: KeyGroup, stored: StoredGroup) -> KeyGroup:
    group.catch_up(BatchStore(stored))
    return group


def _states_in(group: KeyGroup) -> dict[ModelKey, tuple[Any, ...]]:
    keys = dict.fromkeys(key for table in group.tables for key in table)
    return {model_key(*key): tuple(table.get(key) for table in group.tables) for key in keys}


def _keys_in(block: bytes) -> list[ModelKey]:
    with pa.ipc.open_stream(block) as reader:
        batch = reader.read_next_batch()
    return [model_key(*key) for key in decode_keys([batch.column(0), batch.column(1)])]


TestKeyGroupModel = KeyGroupMachine.TestCase
TestKeyGroupModel.settings = settings(max_examples=25, stateful_step_count=20)
