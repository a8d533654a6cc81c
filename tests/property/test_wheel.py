"""The timer wheel against a sorted list.

Timers are registered near and far, late and early; time passes in small and in large steps;
batches are committed or lost. What comes due is what a sorted list would give, and what is read
does not grow with the timers that wait.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.errors import CorruptionError
from holdfast.state.entries import TIMER_HEAD
from holdfast.state.key_groups import canonical_bytes
from holdfast.state.values import NAN
from holdfast.state.wheel import CHUNK_TIMERS, WIDTHS, TimerWheel
from holdfast.testing.entries import MemoryEntries

SECOND, MINUTE, HOUR, DAY = WIDTHS[:4]
START = 1_780_000_000 * SECOND + 123_456
KINDS = ("event", "processing")
KEYS = [(name, number) for name in (None, "a", "ann") for number in (None, 0.0, NAN)]

DISTANCES = st.sampled_from(
    (-400 * DAY, -DAY, -1, 0, 1, SECOND, 59 * SECOND, MINUTE, 17 * MINUTE, HOUR, 25 * HOUR,
     40 * DAY, 3000 * DAY)
)  # fmt: skip
TIMERS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), DISTANCES, st.integers(0, 3 * SECOND), st.sampled_from(KEYS)
    ),
    max_size=8,
)
STEPS = st.sampled_from(
    (0, 1, SECOND // 3, SECOND, 10 * SECOND, MINUTE, HOUR, DAY, 50 * DAY, 2000 * DAY)
)


def in_order(timers: set[tuple[int, Any]]) -> list[tuple[int, Any]]:
    return sorted(timers, key=lambda timer: (timer[0], canonical_bytes(timer[1])))


class WheelMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stored = MemoryEntries()
        self.now = START
        self.model: dict[str, set[tuple[int, Any]]] = {kind: set() for kind in KINDS}
        self.begin()

    def begin(self) -> None:
        self.store, self.wheel = self.stored.copy(), TimerWheel((pa.string(), pa.float64()))
        self.wheel.begin(self.store)
        self.visit = deepcopy(self.model)

    @rule(timers=TIMERS)
    def register(self, timers: list[Any]) -> None:
        for kind, distance, more, key in timers:
            time = self.now + distance + more
            self.wheel.register(kind, time, key)
            self.visit[kind].add((time, key))

    @rule(kind=st.sampled_from(KINDS), distance=DISTANCES)
    def register_many(self, kind: str, distance: int) -> None:
        for number in range(CHUNK_TIMERS + 50):
            timer = (self.now + distance + number * SECOND // 7, (str(number), 1.0))
            self.wheel.register(kind, *timer)
            self.visit[kind].add(timer)

    @rule(kind=st.sampled_from(KINDS), step=STEPS)
    def time_passes(self, kind: str, step: int) -> None:
        self.now += step
        due = {timer for timer in self.visit[kind] if timer[0] <= self.now}
        assert self.wheel.due(kind, self.now) == in_order(due)
        assert self.wheel.due(kind, self.now) == []
        self.visit[kind] -= due

    @rule()
    def commit(self) -> None:
        written = self.wheel.flush(self.store)
        assert written == bool(self.store.puts or self.store.removes)
        self.stored, self.model = self.store, self.visit
        self.begin()

    @rule(flushed=st.booleans())
    def lose(self, flushed: bool) -> None:
        if flushed:
            self.wheel.flush(self.store)
        self.begin()

    @invariant()
    def next_is_the_earliest(self) -> None:
        for kind in KINDS:
            times = [time for time, _ in self.visit[kind]]
            assert self.wheel.next(kind) == min(times, default=None)

    @invariant()
    def stored_is_the_model(self) -> None:
        wheel = TimerWheel((pa.string(), pa.float64()))
        wheel.begin(self.stored.copy())
        for kind in KINDS:
            assert wheel.due(kind, 2**62) == in_order(self.model[kind])
        if not any(self.model.values()):
            assert self.stored.entries == {}


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=80, stateful_step_count=25)


class Group:
    """A key group's wheel over many batches."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.wheel = TimerWheel((pa.string(),))

    def batch(self, until: int, *register: tuple[int, str]) -> tuple[list[Any], MemoryEntries]:
        """Time has come to `until`, and timers are registered; what was due, and the cost."""
        store = MemoryEntries(self.entries)
        self.wheel.begin(store)
        due = self.wheel.due("event", until)
        for time, key in register:
            self.wheel.register("event", time, key)
        self.wheel.flush(store)
        self.entries = store.entries
        return due, store

    @property
    def head_size(self) -> int:
        return len(self.entries.get(TIMER_HEAD, b""))


class TestCost:
    @pytest.mark.parametrize("waiting", [0, 1_000, 100_000])
    def test_timers_that_wait_cost_nothing(self, waiting: int) -> None:
        group = Group()
        group.batch(START)
        day_after = START + 2 * DAY
        group.batch(START, *((day_after + n * SECOND, f"key-{n}") for n in range(waiting)))
        for second in range(1, 20):
            now = START + second * SECOND
            due, store = group.batch(now, (now + 3 * SECOND, "near"))
            assert due == ([(now, "near")] if second > 3 else [])
            assert store.gets <= 3
            assert store.puts <= 3
        due, store = group.batch(START + 30 * SECOND)
        assert len(due) == 3
        due, store = group.batch(START + 40 * SECOND)
        assert (due, store.gets, store.puts) == ([], 1, 0)

    def test_a_timer_is_moved_a_few_times_only(self) -> None:
        """From its day to its hour, its minute, its second; not in every batch."""
        group, total = Group(), 5_000
        group.batch(START)
        first = START + 30 * HOUR
        group.batch(START, *((first + n * SECOND, f"key-{n}") for n in range(total)))
        fired, puts, gets, now = 0, 0, 0, first - MINUTE
        while fired < total:
            now += 10 * SECOND
            due, store = group.batch(now)
            fired += len(due)
            puts += store.puts
            gets += store.gets
        batches = total // 10 + 6
        assert puts < 3 * batches
        assert gets < 3 * batches
        assert group.entries == {}

    def test_the_head_stays_small(self) -> None:
        """Timers of every second for an hour, every minute for a day, every day for years."""
        group = Group()
        group.batch(START)
        near = [START + n * SECOND for n in range(3_600)]
        far = [START + n * MINUTE for n in range(1_440)]
        years = [START + n * DAY for n in range(5_000)]
        group.batch(START, *((time, "key") for time in near + far + years))
        assert group.head_size < 6_000

    def test_late_timers_do_not_make_slots(self) -> None:
        group = Group()
        group.batch(START)
        group.batch(START, *((START - n * DAY, "late") for n in range(1, 1000)))
        assert group.head_size < 100
        due, _ = group.batch(START)
        assert len(due) == 999

    def test_chunks_are_filled_up(self) -> None:
        """A timer per batch, all for one day: as many chunks as they need, not one each."""
        group = Group()
        for n in range(1_000):
            group.batch(START, (START + 5 * DAY, f"key-{n}"))
        assert len(group.entries) - 1 == -(-1_000 // CHUNK_TIMERS)


def test_a_renamed_kind_finds_its_timers() -> None:
    group = Group()
    group.batch(START, (START + SECOND, "a"), (START + DAY, "b"))
    group.wheel = TimerWheel((pa.string(),), {"renamed": ("other", "event")})
    store = MemoryEntries(group.entries)
    group.wheel.begin(store)
    assert group.wheel.next("renamed") == START + SECOND
    group.wheel.register("renamed", START + SECOND, "c")
    assert [key for _, key in group.wheel.due("renamed", START + MINUTE)] == ["a", "c"]
    group.wheel.flush(store)
    group.wheel.begin(store)
    assert group.wheel.due("renamed", START + DAY) == [(START + DAY, "b")]
    group.wheel.flush(store)
    assert store.entries == {}


def test_a_missing_chunk_is_noticed() -> None:
    group = Group()
    group.batch(START, (START + SECOND, "a"))
    chunk = next(key for key in group.entries if key != TIMER_HEAD)
    del group.entries[chunk]
    with pytest.raises(CorruptionError, match="STATE_PAGE_MISSING"):
        group.batch(START + SECOND)


def test_golden_entries() -> None:
    """Stored state must stay readable: these bytes may never change their meaning."""
    group = Group()
    group.batch(0)
    group.batch(0, (90 * SECOND, "ann"))
    assert group.entries == {
        b"T": bytes.fromhex("01 81 a56576656e74 92 00 91 94 01 01 ce055d4a80 01"),
        bytes.fromhex("74 0005 6576656e74 01 0000000000000001 00000000"): bytes.fromhex(
            "01 92 ce055d4a80 a3616e6e"
        ),
    }
