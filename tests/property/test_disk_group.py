"""The rocksdb backend's key group against a plain dict.

Batches come with any keys, read and change them through the tables as handles do, and are
committed or lost. What is stored must always be what a dict holds that saw the committed
batches only; and how much is read must depend on what a batch touches, not on what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.state.blocks import StateLayout, StateVariable
from holdfast.state.disk import DiskGroup, DiskHead
from holdfast.state.pages import CHUNK_ELEMENTS, PAGE_ENTRIES, LazyMap
from holdfast.state.schema import parse_type
from holdfast.state.values import NAN, coercion
from holdfast.testing.entries import MemoryEntries

PAIR = parse_type("total double, n bigint")
LAYOUT = StateLayout(
    (pa.string(), pa.float64()),
    (
        StateVariable("total", pa.int64()),
        StateVariable("items", pa.list_(pa.string())),
        StateVariable("seen", pa.map_(pa.int32(), pa.string())),
        StateVariable("pair", PAIR),
    ),
)
RENAMED = StateLayout(
    LAYOUT.key_kinds,
    (
        StateVariable("total", pa.int64()),
        StateVariable("parts", pa.list_(pa.string()), ("things", "items")),
        StateVariable("visited", pa.map_(pa.int32(), pa.string()), ("seen",)),
        StateVariable("mean", PAIR, ("pair",)),
        StateVariable("added", pa.bool_()),
    ),
)
PAGED = frozenset({"items", "seen", "parts", "visited"})

Key = tuple[Any, Any]
State = dict[str, Any]
"""A key's values in plain Python, by the variable's first name; none is empty."""
KEYS = [
    (name, number)
    for name in (None, "", "ann", "Ærøskøbing")
    for number in (None, 0.0, 1.5, NAN)
]
FIRST_NAMES = ("total", "items", "seen", "pair", "added")


class Batch:
    """One visit of the key group, and what a dict would make of it."""

    def __init__(
        self, layout: StateLayout, store: MemoryEntries, head: DiskHead | None
    ) -> None:
        self.group = DiskGroup(layout, 7, paged=PAGED)
        self.store = store
        self.group.begin(store, head)

    def touch(self, key: Key) -> Key:
        self.group.touch(key)
        return key

    def apply(self, key: Key, op: str, n: int, state: State) -> None:
        """Do to the tables what a handle does, and the same to the model."""
        total, items, seen, pair = self.group.tables[:4]
        text = str(n % 7)
        match op:
            case "total":
                self.touch(key)
                total[key] = state["total"] = n
            case "pair":
                self.touch(key)
                pair[key] = state["pair"] = coercion(PAIR)((n / 2, n))
            case "add" | "add many":
                added = [text] * (1 if op == "add" else CHUNK_ELEMENTS + n % 50)
                items.setdefault(self.touch(key), []).extend(added)
                state["items"] = state.get("items", []) + added
            case "put" | "put many":
                for entry in range(n % 300, n % 300 + (1 if op == "put" else 2 * PAGE_ENTRIES)):
                    seen.setdefault(self.touch(key), {})[entry] = text
                    state.setdefault("seen", {})[entry] = text
            case "drop":
                entries = seen.get(key, {})
                entry = n % 300
                if entry in entries:
                    self.touch(key)
                    del entries[entry]
                    del state["seen"][entry]
                    if not entries:
                        del seen[key], state["seen"]
            case "replace list":
                self.touch(key)
                items[key] = [text] * (n % 300 + 1)
                state["items"] = [text] * (n % 300 + 1)
            case "replace map":
                self.touch(key)
                seen[key] = dict.fromkeys(range(n % 300 + 1), text)
                state["seen"] = dict.fromkeys(range(n % 300 + 1), text)
            case "write the same":
                if key in total:
                    self.touch(key)
                    total[key] = int(total[key])
            case "clear":
                self.clear(key, FIRST_NAMES, state)
            case _:
                self.clear(key, (op.removeprefix("clear "),), state)

    def clear(self, key: Key, names: Iterable[str], state: State) -> None:
        for name, table in zip(FIRST_NAMES, self.group.tables, strict=False):
            if name in names and key in table:
                del table[self.touch(key)]
                del state[name]


OPS = (
    "total", "pair", "add", "add many", "put", "put many", "drop", "replace list",
    "replace map", "write the same", "clear", "clear total", "clear items", "clear seen",
)  # fmt: skip
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(OPS), st.integers(0, 10_000)), max_size=12
)


class DiskGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.layout = LAYOUT
        self.stored, self.head = MemoryEntries(), DiskHead(wake=5)
        self.model: dict[Key, State] = {}
        self.savepoint: Any = None
        self.take_savepoint()

    def run(self, records: list[tuple[Key, str, int]], ahead: bool) -> tuple[Batch, Any]:
        batch = Batch(self.layout, self.stored.copy(), self.head)
        if ahead:
            batch.group.ensure(key for key, _, _ in records)
            assert batch.store.calls <= 1, "all keys of a batch are read in one call"
        model = deepcopy(self.model)
        for key, op, n in records:
            batch.group.ensure([key])
            assert batch.group.has(key) == (key in model)
            batch.apply(key, op, n, model.setdefault(key, {}))
            model = {key: state for key, state in model.items() if state}
            assert state_of(batch.group, key) == model.get(key, {})
        return batch, model

    @rule(records=RECORDS, ahead=st.booleans())
    def commit(self, records: list[tuple[Key, str, int]], ahead: bool) -> None:
        batch, model = self.run(records, ahead)
        written = batch.group.flush(batch.store)
        assert written == bool(batch.store.puts or batch.store.removes)
        assert not any(batch.group.tables), "the worker keeps nothing"
        assert not batch.group.changed
        self.stored, self.head, self.model = batch.store, batch.group.head, model

    @rule(records=RECORDS, flushed=st.booleans())
    def lose(self, records: list[tuple[Key, str, int]], flushed: bool) -> None:
        """The task dies, before or after it has flushed: Spark commits nothing."""
        batch, _ = self.run(records, ahead=True)
        if flushed:
            batch.group.flush(batch.store)

    @rule(records=RECORDS)
    def begin_again_in_the_same_worker(self, records: list[tuple[Key, str, int]]) -> None:
        """User code has raised in the middle; the same group object is begun anew."""
        batch, _ = self.run(records, ahead=True)
        batch.group.begin(self.stored.copy(), self.head, [key for key, _, _ in records])
        for key in {key for key, _, _ in records}:
            assert state_of(batch.group, key) == self.model.get(key, {})

    @rule()
    def touch_without_a_change(self) -> None:
        """A write of what is there already writes nothing."""
        if self.layout is LAYOUT:  # after a rename it moves values
            self.commit([(key, "write the same", 0) for key in KEYS], True)
            assert self.stored.puts == self.stored.removes == 0

    @rule()
    def write_without_reading_first(self) -> None:
        """Code that forgets to ask for a key must not leave its old pages behind."""
        batch = Batch(self.layout, self.stored.copy(), self.head)
        batch.group.changed[KEYS[0]] = True
        batch.group.tables[2][KEYS[0]] = {1: "x"}
        batch.group.flush(batch.store)
        self.stored, self.head = batch.store, batch.group.head
        self.model[KEYS[0]] = {"seen": {1: "x"}}

    @rule()
    def clear_everything(self) -> None:
        self.commit([(key, "clear", 0) for key in KEYS], True)
        assert self.stored.entries == {}

    @precondition(lambda self: self.layout is LAYOUT)
    @rule()
    def rename_and_add_variables(self) -> None:
        self.layout = RENAMED

    @rule()
    def take_savepoint(self) -> None:
        self.savepoint = (self.stored.copy(), self.head, deepcopy(self.model), self.layout)

    @rule()
    def roll_back(self) -> None:
        stored, self.head, model, self.layout = self.savepoint
        self.stored, self.model = stored.copy(), deepcopy(model)

    @invariant()
    def stored_is_the_model(self) -> None:
        group = DiskGroup(self.layout, 7, paged=PAGED)
        group.begin(self.stored.copy(), self.head, KEYS)
        for key in KEYS:
            assert state_of(group, key) == self.model.get(key, {})

    @invariant()
    def head_counts(self) -> None:
        assert self.head.live_keys == len(self.model)
        assert self.head.stored_bytes == self.stored.size
        assert self.head.wake == 5, "what is the runner's stays"


def state_of(group: DiskGroup, key: Key) -> State:
    """What the tables hold of a key, in plain Python."""
    return {
        name: plain(table[key])
        for name, table in zip(FIRST_NAMES, group.tables, strict=False)
        if key in table
    }


def plain(value: Any) -> Any:
    if isinstance(value, (int, tuple)):
        return value
    return dict(value) if isinstance(value, (dict, LazyMap)) else list(value)


TestDiskGroup = DiskGroupMachine.TestCase
TestDiskGroup.settings = settings(max_examples=80, stateful_step_count=20)


# -- how much is read and written ---------------------------------------------------------


def group_of(*variables: StateVariable, paged: Iterable[str] = ()) -> DiskGroup:
    return DiskGroup(StateLayout((pa.string(),), variables), 0, paged=frozenset(paged))


TOTAL = StateVariable("total", pa.int64())
SEEN = StateVariable("seen", pa.map_(pa.int64(), pa.int64()))


class TestCost:
    def test_a_batch_is_read_in_one_call_and_written_in_one(self) -> None:
        group, store = group_of(TOTAL, StateVariable("last", pa.string())), MemoryEntries()
        keys = [f"user-{n}" for n in range(1000)]
        group.begin(store, None, keys)
        assert (store.calls, store.gets) == (1, 2000)
        for key in keys:
            group.touch(key)
            group.tables[0][key] = 1
        group.flush(store)
        assert (store.calls, store.puts) == (2, 1000)
        assert group.head.live_keys == 1000

    def test_only_the_variable_that_changed_is_written(self) -> None:
        group, store = group_of(TOTAL, StateVariable("last", pa.string())), MemoryEntries()
        for total in (1, 2):
            group.begin(store, group.head, ["a"])
            group.touch("a")
            group.tables[0]["a"], group.tables[1]["a"] = total, "same"
            group.flush(store)
        assert store.puts == 3

    def test_one_entry_of_a_large_map(self) -> None:
        group, store = group_of(SEEN, TOTAL, paged=["seen"]), MemoryEntries()
        group.begin(store, None, ["a"])
        group.touch("a")
        group.tables[0]["a"] = {n: n for n in range(100_000)}
        group.flush(store)
        pages = store.puts
        assert pages == pytest.approx(100_000 / PAGE_ENTRIES, rel=0.01)

        store = MemoryEntries(store.entries)
        group.begin(store, group.head, ["a"])
        assert store.gets == 2, "the head of the map, and the total"
        group.touch("a")
        group.tables[0]["a"][77] = -1
        group.tables[0]["a"][100_001] = -1
        assert len(group.tables[0]["a"]) == 100_001
        group.flush(store)
        assert store.gets <= 2 + 3
        assert store.puts <= 4

        store = MemoryEntries(store.entries)
        group.begin(store, group.head, ["a"])
        group.touch("a")
        del group.tables[0]["a"]
        group.flush(store)
        assert (store.gets, store.entries) == (2, {})
        assert (group.live_keys, group.stored_bytes) == (0, 0)

    def test_small_maps_and_lists_need_no_pages(self) -> None:
        items = StateVariable("items", pa.list_(pa.int64()))
        group, store = group_of(SEEN, items, paged=["seen", "items"]), MemoryEntries()
        group.begin(store, None, ["a"])
        group.touch("a")
        group.tables[0]["a"], group.tables[1]["a"] = {1: 1}, [1]
        group.flush(store)
        assert len(store.entries) == 2
        store = MemoryEntries(store.entries)
        group.begin(store, group.head, ["a"])
        assert group.tables[0]["a"] == {1: 1}
        assert group.tables[1]["a"] == [1]
        assert store.calls == 1

    def test_keys_that_are_asked_for_later(self) -> None:
        group, store = group_of(TOTAL), MemoryEntries()
        group.begin(store, None, ["a"])
        group.touch("a")
        group.tables[0]["a"] = 1
        group.flush(store)
        store = MemoryEntries(store.entries)
        group.begin(store, group.head, ["b"])
        assert "a" not in group.tables[0]
        group.ensure(["a", "b", "a"])
        assert (group.tables[0], store.gets) == ({"a": 1}, 2)
        group.tables[0]["a"] = 5
        group.ensure(["a"])
        assert group.tables[0]["a"] == 5, "what user code wrote is not read over"


class TestTypes:
    def test_a_variable_that_became_wider(self) -> None:
        store = MemoryEntries()
        narrow = group_of(StateVariable("n", pa.int32()), StateVariable("x", pa.float32()))
        narrow.begin(store, None, ["a"])
        narrow.touch("a")
        narrow.tables[0]["a"], narrow.tables[1]["a"] = 7, 0.5
        narrow.flush(store)
        wide = group_of(StateVariable("n", pa.int64()), StateVariable("x", pa.float64()))
        wide.begin(store, narrow.head, ["a"])
        assert [table["a"] for table in wide.tables] == [7, 0.5]
        wide.touch("a")
        wide.tables[0]["a"] = 2**40
        wide.flush(store)
        wide.begin(store, wide.head, ["a"])
        assert [table["a"] for table in wide.tables] == [2**40, 0.5]

    def test_a_value_that_cannot_be_stored(self) -> None:
        """Nothing is written, and the runner can still look for the culprit."""
        group, store = group_of(TOTAL), MemoryEntries()
        group.begin(store, None, ["a", "b"])
        for key, total in (("a", 1), ("b", 2**63)):
            group.touch(key)
            group.tables[0][key] = total
        with pytest.raises(OverflowError):
            group.flush(store)
        assert store.entries == {}
        assert list(group.changed) == ["a", "b"]
        assert group.tables[0]["b"] == 2**63

    def test_nan_is_one_key(self) -> None:
        assert math.isnan(NAN)
        layout = StateLayout((pa.float64(),), (TOTAL,))
        group, store = DiskGroup(layout, 0), MemoryEntries()
        group.begin(store, None, [NAN])
        group.touch(NAN)
        group.tables[0][NAN] = 1
        group.flush(store)
        group.begin(store, group.head, [NAN])
        assert group.tables[0][NAN] == 1


class TestRenaming:
    """A renamed variable is found under its older names, and moves when it is written."""

    NEW = ("visited", "total now", "parts")

    def old_and_new(self) -> tuple[DiskGroup, DiskGroup, MemoryEntries]:
        """A key with a value, a map and a list of many pages, and a group with new names."""
        items = StateVariable("items", pa.list_(pa.int64()))
        old = group_of(SEEN, TOTAL, items, paged=["seen", "items"])
        variables = [
            replace(variable, name=name, older_names=("never used", variable.name))
            for variable, name in zip((SEEN, TOTAL, items), self.NEW, strict=True)
        ]
        store = MemoryEntries()
        old.begin(store, None, ["a"])
        old.touch("a")
        old.tables[0]["a"] = {n: n for n in range(500)}
        old.tables[1]["a"] = 7
        old.tables[2]["a"] = list(range(500))
        old.flush(store)
        return old, group_of(*variables, paged=["visited", "parts"]), store

    def test_values_are_found(self) -> None:
        old, new, store = self.old_and_new()
        calls = store.calls
        new.begin(store, old.head, ["a", "b"])
        assert store.calls == calls + 1, "all names are asked for at once"
        assert new.has("a")
        assert not new.has("b")
        assert new.tables[0]["a"] == {n: n for n in range(500)}
        assert [table["a"] for table in new.tables[1:]] == [7, list(range(500))]

    def test_values_move_when_the_key_is_written(self) -> None:
        old, new, store = self.old_and_new()
        size, pages = store.size, [key for key in store.entries if key.startswith(b"p")]
        new.begin(store, old.head, ["a"])
        new.touch("a")
        new.tables[0]["a"][500] = 500
        new.flush(store)
        names = {key[3 : 3 + key[2]].decode() for key in store.entries if key[:1] == b"v"}
        assert names == set(self.NEW)
        assert all(page in store.entries for page in pages), "pages are not rewritten"
        assert new.stored_bytes == store.size > size
        new.begin(store, new.head, ["a"])
        assert new.tables[0]["a"] == {n: n for n in range(501)}
        assert new.tables[2]["a"] == list(range(500))

    @pytest.mark.parametrize("moved_first", [False, True])
    def test_clearing_leaves_nothing(self, moved_first: bool) -> None:
        old, new, store = self.old_and_new()
        new.head = old.head
        if moved_first:
            new.begin(store, old.head, ["a"])
            new.touch("a")
            new.tables[1]["a"] = 8
            new.flush(store)
        new.begin(store, new.head, ["a"])
        new.touch("a")
        for table in new.tables:
            del table["a"]
        new.flush(store)
        assert (store.entries, new.stored_bytes, new.live_keys) == ({}, 0, 0)

    def test_the_newest_name_wins(self) -> None:
        store, both = MemoryEntries(), StateVariable("b", pa.int64(), ("a",))
        for name, number in (("a", 1), ("b", 2)):
            group = group_of(StateVariable(name, pa.int64()))
            group.begin(store, None, ["k"])
            group.touch("k")
            group.tables[0]["k"] = number
            group.flush(store)
        group = group_of(both)
        group.begin(store, None, ["k"])
        assert group.tables[0] == {"k": 2}


def test_golden_entries() -> None:
    """Stored state must stay readable: these bytes may never change their meaning."""
    group, store = group_of(TOTAL, SEEN, paged=["seen"]), MemoryEntries()
    group.begin(store, None, ["ann"])
    group.touch("ann")
    group.tables[0]["ann"] = 300
    group.flush(store)
    assert store.entries == {
        bytes.fromhex("76 0005 746f74616c 73 00000003 616e6e"): bytes.fromhex("01 cd012c")
    }
