"""Paged maps and lists against a dict and a list, over many batches.

Each batch opens the value from its stored head, works on it, and is committed or lost. Whatever
happens, what is stored is what the model holds, no page is left behind, and the work done does
not depend on how large the value is.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.errors import CorruptionError
from holdfast.state.codec import load
from holdfast.state.entries import Writes
from holdfast.state.pages import (
    CHUNK_ELEMENTS,
    PAGE_ENTRIES,
    LazyList,
    LazyMap,
    PagedMap,
    PagedVariable,
    PagesHead,
    paged_variable,
)
from holdfast.state.schema import parse_type
from holdfast.testing.entries import MemoryEntries

KEY = b"s\x00\x00\x00\x03ann"
NUMBERS = st.integers(0, 400)
RUNS = st.tuples(NUMBERS, st.sampled_from((1, 5, 70, 300)))
"""First number and how many: a few entries, or enough to split pages."""


class Stored:
    """One paged value, as the state store holds it between batches."""

    def __init__(self, kind: str) -> None:
        self.variable = paged_variable("seen", parse_type(kind))
        self.entries = MemoryEntries()
        self.head: bytes | None = None

    def open(self) -> Any:
        return self.variable.open(self.entries, KEY, self.head)

    def commit(self, value: LazyMap | LazyList) -> None:
        before, writes = self.entries.size, Writes()
        self.head, growth = value.flush(writes)
        writes.apply(self.entries)
        assert self.entries.size - before == growth, "the growth that was told is not true"

    @property
    def pages(self) -> int:
        return 0 if self.head is None else PagesHead(*load(self.head)).pages


class MapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stored = Stored("map<int,string>")
        self.model: dict[int, str] = {}
        self.begin()

    def begin(self) -> None:
        self.value: LazyMap = self.stored.open()
        self.now = dict(self.model)

    @rule(run=RUNS, text=st.text("ab", max_size=2))
    def put(self, run: tuple[int, int], text: str) -> None:
        for entry in range(run[0], sum(run)):
            self.value[entry] = self.now[entry] = text

    @rule(run=RUNS)
    def delete(self, run: tuple[int, int]) -> None:
        for entry in range(run[0], sum(run)):
            found = self.now.pop(entry, None)
            assert self.value.pop(entry, None) == found
        assert bool(self.value) == bool(self.now)

    @rule(entry=NUMBERS)
    def look(self, entry: int) -> None:
        assert (entry in self.value) == (entry in self.now)
        assert self.value.get(entry) == self.now.get(entry)
        assert len(self.value) == len(self.now)

    @rule()
    def read_all(self) -> None:
        calls = self.stored.entries.calls
        assert dict(self.value.items()) == self.now
        assert set(self.value) == set(self.now)
        assert sorted(self.value.values()) == sorted(self.now.values())
        assert self.stored.entries.calls <= calls + 1, "pages are read in one call"

    @rule()
    def clear(self) -> None:
        self.value.clear()
        self.now = {}

    @rule(run=RUNS)
    def replace(self, run: tuple[int, int]) -> None:
        self.now = dict.fromkeys(range(run[0], sum(run)), "new")
        gets = self.stored.entries.gets
        self.value.replace(self.now)
        assert self.stored.entries.gets == gets

    @rule(run=RUNS)
    def fetch(self, run: tuple[int, int]) -> None:
        self.value.fetch(range(run[0], sum(run)))
        gets = self.stored.entries.gets
        for entry in range(run[0], sum(run)):
            assert self.value.get(entry) == self.now.get(entry)
        assert self.stored.entries.gets == gets

    @rule()
    def commit(self) -> None:
        self.stored.commit(self.value)
        self.model = self.now
        self.begin()

    @rule()
    def lose(self) -> None:
        """The task dies: nothing of the batch was written."""
        self.begin()

    @invariant()
    def stored_is_the_model(self) -> None:
        reader = Stored("map<int,string>")
        reader.entries, reader.head = self.stored.entries.copy(), self.stored.head
        assert reader.open() == self.model
        assert (self.stored.head is None) == (not self.model)

    @invariant()
    def no_page_is_left_behind(self) -> None:
        # Every page in the store is one that the head knows, and none is empty.
        assert len(self.stored.entries.entries) <= self.stored.pages
        small = len(self.model) <= PAGE_ENTRIES and not self.stored.pages
        assert not (small and self.stored.entries.entries)


class ListMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stored = Stored("array<bigint>")
        self.model: list[int] = []
        self.begin()

    def begin(self) -> None:
        self.value: LazyList = self.stored.open()
        self.now = list(self.model)

    @rule(run=RUNS)
    def extend(self, run: tuple[int, int]) -> None:
        gets = self.stored.entries.gets
        self.value.extend(range(run[0], sum(run)))
        self.now.extend(range(run[0], sum(run)))
        assert len(self.value) == len(self.now)
        assert self.stored.entries.gets == gets, "appending reads nothing"

    @rule(number=NUMBERS)
    def append(self, number: int) -> None:
        self.value.append(number)
        self.now.append(number)

    @rule(at=st.integers(-900, 900))
    def look(self, at: int) -> None:
        if -len(self.now) <= at < len(self.now):
            assert self.value[at] == self.now[at]
        else:
            with pytest.raises(IndexError):
                self.value[at]
        assert self.value[at:] == self.now[at:]

    @rule()
    def read_all(self) -> None:
        calls = self.stored.entries.calls
        assert list(self.value) == self.now
        assert self.stored.entries.calls <= calls + 1

    @rule()
    def clear(self) -> None:
        self.value.clear()
        self.now = []

    @rule(run=RUNS)
    def replace(self, run: tuple[int, int]) -> None:
        self.now = list(range(run[0], sum(run)))
        self.value.replace(self.now)

    @rule()
    def commit(self) -> None:
        self.stored.commit(self.value)
        self.model = self.now
        self.begin()

    @rule()
    def lose(self) -> None:
        self.begin()

    @invariant()
    def stored_is_the_model(self) -> None:
        reader = Stored("array<bigint>")
        reader.entries, reader.head = self.stored.entries.copy(), self.stored.head
        assert reader.open() == self.model
        assert len(self.stored.entries.entries) == len(self.model) // CHUNK_ELEMENTS


TestMap = MapMachine.TestCase
TestMap.settings = settings(max_examples=150, stateful_step_count=25)
TestList = ListMachine.TestCase
TestList.settings = settings(max_examples=150, stateful_step_count=25)


def large_map(kind: str, entries: dict[Any, Any]) -> Stored:
    stored = Stored(kind)
    value = stored.open()
    value.replace(entries)
    stored.commit(value)
    return stored


SIZE = 100_000


@pytest.fixture(scope="module")
def large() -> Stored:
    return large_map("map<int,int>", {n: n for n in range(SIZE)})


class TestALargeMap:
    """100,000 entries: what a record does must not read them."""

    @pytest.fixture
    def stored(self, large: Stored) -> Stored:
        stored = Stored("map<int,int>")
        stored.entries, stored.head = large.entries.copy(), large.head
        return stored

    @pytest.mark.parametrize(
        ("work", "most_pages"),
        [
            (lambda value: value[77], 1),
            (lambda value: value.get(-1), 1),
            (lambda value: 77 in value, 1),
            (len, 0),
            (bool, 0),
            (lambda value: value.__setitem__(77, 5), 1),
            (lambda value: value.__setitem__(-1, 5), 2),
            (lambda value: value.pop(77), 1),
            (lambda value: value.clear(), 0),
            (lambda value: value.replace({1: 1}), 0),
        ],
        ids=["get", "miss", "in", "len", "bool", "set", "insert", "pop", "clear", "replace"],
    )
    def test_touching_one_entry(self, stored: Stored, work: Any, most_pages: int) -> None:
        value = stored.open()
        work(value)
        stored.commit(value)
        assert stored.entries.gets <= most_pages
        assert stored.entries.puts <= 2

    def test_pages_are_about_equally_full(self, large: Stored) -> None:
        sizes = [len(large.variable.decode(page)) for page in large.entries.entries.values()]
        assert sum(sizes) == SIZE
        assert max(sizes) <= 4 * PAGE_ENTRIES

    def test_growing_one_by_one(self) -> None:
        """No insertion reads more than two pages, however large the map has become."""
        stored, most = Stored("map<int,int>"), 0
        for batch in range(200):
            value = stored.open()
            gets = stored.entries.gets
            value[batch * 50] = 1
            most = max(most, stored.entries.gets - gets)
            for number in range(1, 50):
                value[batch * 50 + number] = 1
            stored.commit(value)
        assert most <= 2
        assert stored.open() == dict.fromkeys(range(10_000), 1)
        assert stored.pages == -(-10_000 // PAGE_ENTRIES)

    def test_what_is_written_back_unchanged_is_not_written(self, stored: Stored) -> None:
        value = stored.open()
        value[77] = 5
        value[77] = 77
        head = stored.head
        stored.commit(value)
        assert (stored.entries.puts, stored.head) == (0, head)

    def test_a_missing_page_is_noticed(self, stored: Stored) -> None:
        stored.entries.entries.popitem()
        with pytest.raises(CorruptionError, match="STATE_PAGE_MISSING"):
            list(stored.open())


class TestALargeList:
    def test_appending_and_length_read_nothing(self) -> None:
        stored = Stored("array<bigint>")
        for _ in range(20):
            value = stored.open()
            value.extend(range(1000))
            stored.commit(value)
        assert len(stored.open()) == 20_000
        assert stored.entries.gets == 0
        assert stored.entries.puts == 20_000 // CHUNK_ELEMENTS

    def test_a_missing_page_is_noticed(self) -> None:
        stored = Stored("array<bigint>")
        value = stored.open()
        value.extend(range(1000))
        stored.commit(value)
        stored.entries.entries.popitem()
        with pytest.raises(CorruptionError, match="STATE_PAGE_MISSING"):
            list(stored.open())


class TestEntriesThatADictFinds:
    """Equal keys are one entry, whatever their class; the hash of bytes must not see more."""

    @given(
        st.lists(st.sampled_from((0.0, -0.0, 1.0, math.nan, math.inf)), max_size=8),
        st.booleans(),
    )
    def test_floats(self, keys: list[float], reload: bool) -> None:
        stored = Stored("map<double,int>")
        value, model = stored.open(), {}
        for at, key in enumerate(keys):
            value[key] = at
            model["NaN" if math.isnan(key) else key] = at
        if reload:
            stored.commit(value)
            value = stored.open()
        found = {"NaN" if math.isnan(key) else key: at for key, at in value.items()}
        assert found == model
        assert all(key in value for key in keys)

    def test_numbers_of_another_class(self) -> None:
        stored = large_map("map<double,int>", {float(n): n for n in range(500)})
        value = stored.open()
        assert value[77] == 77
        assert 77 in value
        assert "77" not in value
        assert 77.5 not in value

    def test_numbers_that_no_entry_can_have(self) -> None:
        value = large_map("map<int,int>", {n: n for n in range(500)}).open()
        assert value[77.0] == 77
        assert 77.5 not in value
        assert 2**70 not in value
        with pytest.raises(KeyError):
            value["x"]

    def test_a_decimal_is_not_rounded_to_find_it(self) -> None:
        value = large_map("map<decimal(9,2),int>", {Decimal("1.00"): 1}).open()
        assert Decimal("1") in value
        assert Decimal("1.001") not in value

    def test_structs(self) -> None:
        stored = large_map("map<struct<a:int,b:string>,int>", {(n, "x"): n for n in range(500)})
        value = stored.open()
        assert value[77, "x"] == 77
        assert (77, "y") not in value
        assert next(iter(value)).b == "x"


def test_pages_stay_where_they_are_when_a_variable_is_renamed() -> None:
    stored = large_map("map<int,int>", {n: n for n in range(500)})
    pages = dict(stored.entries.entries)
    kind = stored.variable.kind
    stored.variable = PagedMap("visited", kind)
    renamed = stored.variable.open(stored.entries, KEY, stored.head, found_under="seen")
    renamed[3] = 5
    stored.commit(renamed)
    assert stored.entries.entries.keys() == pages.keys()
    assert stored.open()[3] == 5, "the head says where the pages are"
    value = stored.open()
    value.clear()
    stored.commit(value)
    assert stored.entries.entries == {}


@pytest.mark.parametrize(
    ("variable", "content", "head", "pages"),
    [
        (
            PagedMap("m", parse_type("map<string,int>")),
            {"a": 1},
            "0195010000c0c4050181a16101",
            [],
        ),
        (PagedVariable("l", parse_type("array<int>")), [7], "0195010000c0c403019107", []),
        (
            PagedVariable("l", parse_type("array<int>")),
            [0] * CHUNK_ELEMENTS + [7],
            "0195cc8101cc94c0c403019107",
            ["7000016c" + KEY.hex() + "00000000"],
        ),
    ],
)
def test_golden_heads(
    variable: PagedVariable, content: Any, head: str, pages: list[str]
) -> None:
    """Stored state must stay readable: these bytes may never change their meaning."""
    entries, writes = MemoryEntries(), Writes()
    value = variable.open(entries, KEY)
    value.replace(content)
    assert value.flush(writes).head == bytes.fromhex(head)
    writes.apply(entries)
    assert [key.hex() for key in entries.entries] == pages
    assert variable.open(entries, KEY, bytes.fromhex(head)) == content
