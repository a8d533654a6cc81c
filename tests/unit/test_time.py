"""Timers, TTL and event time, by the harness: the same core as in a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.testing import Harness

SCHEMA = "user string, n bigint, ts timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


Make = Callable[..., Harness]


@pytest.fixture(params=["heap", "rocksdb"])
def make(request: pytest.FixtureRequest) -> Make:
    """A harness on either backend."""
    return partial(Harness, backend=request.param)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Quiet(hf.KeyedProcess):
    """Says when a user has been quiet for ten seconds."""

    last = hf.ValueState("timestamp")
    output = "user string, quiet_since timestamp"

    def process(self, record: Any, ctx: hf.Context) -> None:
        if self.last.value is not None:
            ctx.timers.delete(self.last.value + timedelta(seconds=10))
        self.last.value = record.ts
        ctx.timers.register(record.ts + timedelta(seconds=10))

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        yield ctx.key, self.last.value
        self.last.clear()


def quiet(make: Make) -> Harness:
    return make(Quiet(), SCHEMA, key="user", event_time="ts", delay="0 s")


def test_event_time_timer_fires_when_the_watermark_reaches_it(make: Make) -> None:
    harness = quiet(make)
    assert harness.push(("ann", 1, at(0)), ("bob", 1, at(3))) == []
    assert harness.timers("ann") == [at(10)]
    assert harness.advance_watermark(at(9.999999)) == []
    assert harness.advance_watermark(at(10)) == [("ann", at(0))]
    assert harness.state("ann") == {}
    assert harness.advance_watermark(at(60)) == [("bob", at(3))]
    assert harness.advance_watermark(at(600)) == []


def test_a_key_that_goes_idle_does_not_wait_for_its_own_records(make: Make) -> None:
    harness = quiet(make)
    harness.push(("ann", 1, at(0)))
    for second in range(1, 12):
        harness.push(("bob", 1, at(second)))
    assert [user for user, _ in harness.output] == ["ann"]


def test_deleted_timer_does_not_fire(make: Make) -> None:
    harness = quiet(make)
    harness.push(("ann", 1, at(0)))
    harness.push(("ann", 1, at(5)))
    assert harness.timers("ann") == [at(15)]
    assert harness.advance_watermark(at(14)) == []
    assert harness.advance_watermark(at(15)) == [("ann", at(5))]


def test_timers_survive_a_crash_and_a_restore(make: Make) -> None:
    harness = quiet(make)
    harness.push(("ann", 1, at(0)))
    kept = harness.snapshot()
    harness.crash()
    assert harness.advance_watermark(at(10)) == [("ann", at(0))]
    harness.restore(kept)
    assert harness.timers("ann") == [at(10)]
    assert harness.advance_watermark(at(11)) == [("ann", at(0))]


def test_timers_go_before_the_records_of_the_epoch(make: Make) -> None:
    # The watermark was known when these records came: the user was quiet.
    harness = quiet(make)
    harness.push(("ann", 1, at(0)))
    harness.push(("bob", 1, at(10)))
    assert harness.watermark == at(10)
    assert harness.push(("ann", 1, at(12))) == [("ann", at(0))]
    assert harness.timers("ann") == [at(22)]


class Echo(hf.KeyedProcess):
    """Registers a timer at `n` seconds after noon; reports the firing and what is pending."""

    output = "user string, what string"
    timers = "both"

    def process(self, record: Any, ctx: hf.Context) -> None:
        ctx.timers.register(at(record.n), "event")
        ctx.timers.register(at(record.n), "event")
        ctx.timers.register(ctx.now + timedelta(seconds=record.n), "processing")

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        yield ctx.key, f"{timer.clock} {(timer.time - NOON).total_seconds():.0f}"


def test_any_number_of_timers_and_both_clocks(make: Make) -> None:
    harness = make(Echo(), SCHEMA, key="user", event_time="ts", late="process")
    harness.now = NOON
    harness.push(("ann", 5, at(0)), ("ann", 3, at(0)), ("bob", 4, at(0)))
    assert harness.timers("ann") == [at(3), at(3), at(5), at(5)]
    assert harness.advance_time("3 s") == [("ann", "processing 3")]
    assert sorted(harness.advance_watermark(at(4))) == [("ann", "event 3"), ("bob", "event 4")]
    assert sorted(harness.advance_time("1 min")) == [
        ("ann", "processing 5"),
        ("bob", "processing 4"),
    ]


def test_timer_in_the_past_fires_in_the_next_epoch(make: Make) -> None:
    harness = make(Echo(), SCHEMA, key="user", event_time="ts", late="process")
    harness.advance_watermark(at(100))
    assert harness.push(("ann", 5, at(101))) == []
    assert harness.push() == [("ann", "event 5")]


class Forever(Echo):
    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        ctx.timers.register(timer.time, timer.clock)
        yield ctx.key, "again"


def test_timer_that_registers_itself_again_fires_once_per_epoch(make: Make) -> None:
    harness = make(Forever(), SCHEMA, key="user", event_time="ts")
    harness.push(("ann", 5, at(0)))
    assert harness.advance_watermark(at(100)) == [("ann", "again")]
    assert harness.push() == [("ann", "again")]


def test_timers_with_keys_that_cannot_be_compared(make: Make) -> None:
    harness = make(Quiet(), SCHEMA, key="user", event_time="ts")
    harness.push((None, 1, at(0)), ("ann", 1, at(0)))
    assert sorted(harness.advance_watermark(at(10)), key=str) == [
        ("ann", at(0)),
        (None, at(0)),
    ]


# TTL


class Remembers(hf.KeyedProcess):
    value = hf.ValueState("bigint", default=-1, ttl="10 s")
    touched = hf.ValueState("bigint", ttl=hf.Ttl("10 s", since="read"))
    items = hf.ListState("bigint", ttl="10 s")
    entries = hf.MapState("bigint", "bigint", ttl="10 s")
    total = hf.ReducingState("bigint", lambda a, b: a + b, ttl="10 s")
    output = "user string, seen string"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        seen = (
            self.value.value,
            self.touched.value,
            self.items.get(),
            self.entries.items(),
            self.total.value,
        )
        yield ctx.key, repr(seen)
        if record.n:
            self.value.value = self.touched.value = record.n
            self.items.add(record.n)
            self.entries[record.n] = record.n
            self.total.add(record.n)


def test_state_is_gone_after_its_ttl(make: Make) -> None:
    harness = make(Remembers(), SCHEMA, key="user")
    harness.push(("ann", 1, at(0)))
    harness.advance_time("6 s")
    assert harness.push(("ann", 2, at(0))) == [("ann", "(1, 1, [1], [(1, 1)], 1)")]
    harness.advance_time("4 s")
    # Each element and entry has its own time; the values were written again.
    assert harness.push(("ann", 0, at(0))) == [("ann", "(2, 2, [2], [(2, 2)], 3)")]
    harness.crash()
    harness.advance_time("5999 ms")
    assert harness.push(("ann", 0, at(0))) == [("ann", "(2, 2, [2], [(2, 2)], 3)")]
    harness.advance_time("1 ms")
    # Reading counts for one of them only.
    assert harness.push(("ann", 0, at(0))) == [("ann", "(-1, 2, [], [], None)")]
    harness.advance_time("10 s")
    assert harness.state("ann") == {}


def test_expired_state_is_removed_though_nobody_asks_for_it(make: Make) -> None:
    harness = make(Remembers(), SCHEMA, key="user")
    harness.push(*[(f"user-{i}", 1, at(0)) for i in range(100)])
    harness.advance_time("10 s")
    stored = harness.snapshot().groups.values()
    assert sum(group.head.live_keys for group in stored if group.head) == 0


class EventTtl(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0, ttl=hf.Ttl("10 s", clock="event"))
    output = "user string, total bigint"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        self.total.value += record.n
        yield ctx.key, self.total.value


def test_ttl_in_event_time_counts_from_the_record(make: Make) -> None:
    harness = make(EventTtl(), SCHEMA, key="user", event_time="ts", delay="0 s")
    harness.push(("ann", 1, at(0)))
    harness.push(("ann", 2, at(9)))
    assert harness.push(("ann", 4, at(18))) == [("ann", 7)]
    harness.push(("bob", 1, at(28)))
    assert harness.push(("ann", 1, at(29))) == [("ann", 1)]


# Late records


class Total(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint, late boolean"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        self.total.value += record.n
        yield ctx.key, self.total.value, ctx.is_late(record)


@pytest.mark.parametrize("late", [None, "side", "process", "drop"])
def test_late_records(make: Make, late: Any) -> None:
    harness = make(Total(), SCHEMA, key="user", event_time="ts", delay="5 s", late=late)
    harness.push(("ann", 1, at(10)))
    assert harness.watermark == at(5)
    made = harness.push(("ann", 2, at(5)), ("ann", 4, at(5.000001)), ("ann", 8, None))
    if late == "process":
        assert made == [("ann", 3, True), ("ann", 7, False), ("ann", 15, False)]
    else:
        assert made == [("ann", 5, False), ("ann", 13, False)]
    if late in (None, "side"):
        # As it came, where the watermark stood, by how much it was late, in which epoch, when.
        assert harness.side("late") == [("ann", 2, at(5), at(5), 0, 1, harness.now)]


def test_nothing_is_late_before_the_first_watermark(make: Make) -> None:
    harness = make(Total(), SCHEMA, key="user", event_time="ts", delay="0 s")
    assert harness.push(("ann", 1, at(10)), ("ann", 2, at(-10_000))) == [
        ("ann", 1, False),
        ("ann", 3, False),
    ]


# Refusals


class BatchTimers(Echo):
    process = hf.KeyedProcess.process  # type: ignore[assignment]

    def process_batch(self, keys: Any, table: Any, ctx: hf.Context) -> None:
        """Has no single key."""


class NoOnTimer(Total):
    timers = "event"


@pytest.mark.parametrize(
    ("process", "options", "name"),
    [
        (BatchTimers(), {}, "NOT_SUPPORTED"),
        (NoOnTimer(), {"event_time": "ts"}, "ON_TIMER_MISSING"),
        (Echo(), {}, "EVENT_TIME_MISSING"),
        (EventTtl(), {}, "EVENT_TIME_MISSING"),
        (Total(), {"late": "drop"}, "EVENT_TIME_MISSING"),
        (Total(), {"late": "lose", "event_time": "ts"}, "INVALID_OPTION"),
    ],
)
def test_refused_before_start(
    make: Make, process: Any, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(JobDefinitionError) as caught:
        make(process, SCHEMA, key="user", **options)
    assert caught.value.name == name


@pytest.mark.parametrize("ttl", [{"duration": "0 s"}, {"clock": "wall"}, {"since": "birth"}])
def test_ttl_that_makes_no_sense(ttl: dict[str, Any]) -> None:
    with pytest.raises(JobDefinitionError):
        hf.Ttl(**{"duration": "1 s", **ttl})


class WrongClock(hf.KeyedProcess):
    output = "user string"

    def process(self, record: Any, ctx: hf.Context) -> None:
        ctx.timers.register(record.ts, "event")

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> None:
        raise RuntimeError("a timer that fails")


def test_wrong_clock_is_named(make: Make) -> None:
    harness = make(WrongClock(), SCHEMA, key="user")
    with pytest.raises(HoldfastError, match="TIMER_CLOCK_NOT_DECLARED"):
        harness.push(("ann", 1, at(0)))


def test_failing_timer_names_its_key_and_place(make: Make) -> None:
    harness = make(WrongClock(), SCHEMA, key="user", event_time="ts")
    harness.push(("ann", 1, at(0)))
    with pytest.raises(
        HoldfastError, match=r"RuntimeError: a timer that fails at .*test_time"
    ) as e:
        harness.advance_watermark(at(1))
    assert "'ann'" in str(e.value) and "Timer(" in str(e.value)
