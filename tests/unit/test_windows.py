"""Windows on keyed streams, by the harness: the same core as in a job."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.event_time.build import windowed
from holdfast.event_time.windowing import declared_windowing
from holdfast.event_time.windows import AlignedWindows, Session, Sliding, Tumbling, Window
from holdfast.state.schema import parse_columns
from holdfast.testing import Harness

SCHEMA = "tag string, n bigint, ts timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
OUTPUT = "tag string, start timestamp, end timestamp, firing string, numbers string"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Numbers(hf.WindowProcess):
    """The numbers of a window, from its records."""

    output = OUTPUT
    keep = "n bigint"

    def process(self, window: Window, records: Sequence[Any], ctx: hf.Context) -> Iterator[Any]:
        numbers = sorted(record.n for record in records)
        yield ctx.key, window.start, window.end, window.firing, repr(numbers)


class Folded(hf.WindowProcess):
    """The same from an accumulator."""

    output = OUTPUT
    accumulator = "numbers array<bigint>"

    def create(self) -> Any:
        return ([],)

    def add(self, accumulator: Any, record: Any) -> Any:
        return ([*accumulator.numbers, record.n],)

    def merge(self, a: Any, b: Any) -> Any:
        return (a.numbers + b.numbers,)

    def result(self, window: Window, accumulator: Any, ctx: hf.Context) -> Iterator[Any]:
        numbers = sorted(accumulator.numbers)
        yield ctx.key, window.start, window.end, window.firing, repr(numbers)


Make = Callable[..., Harness]


@pytest.fixture(params=["heap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[Numbers, Folded], ids=["records", "accumulator"])
def make(request: pytest.FixtureRequest, backend: Any) -> Make:
    """A harness for either kind of process on either backend."""
    process = request.param()
    return partial(Harness, process, SCHEMA, key="tag", event_time="ts", backend=backend)


def seconds(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows in short: (start, end, firing, numbers), in seconds after noon."""
    return [
        ((start - NOON).total_seconds(), (end - NOON).total_seconds(), firing, eval(numbers))
        for _, start, end, firing, numbers in rows
    ]


# Which windows there are


def test_where_windows_lie() -> None:
    assert list(Tumbling("10 s").starts(25_000_000)) == [20_000_000]
    assert list(Tumbling("10 s", offset="3 s").starts(22_000_000)) == [13_000_000]
    assert list(Tumbling("10 s").starts(-1)) == [-10_000_000]
    assert list(Sliding("5 s", every="2 s").starts(6_000_000)) == [
        2_000_000,
        4_000_000,
        6_000_000,
    ]
    assert list(Sliding("5 s", every="2 s").starts(7_000_000)) == [4_000_000, 6_000_000]
    # Days of a time zone that is one hour ahead of UTC.
    days = Tumbling("1 d", offset="-1 h")
    assert list(days.starts(0)) == [-3_600_000_000]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(-90, 90), st.integers(-300, 300))
def test_a_time_lies_in_all_its_windows(size: int, every: int, offset: int, time: int) -> None:
    every = min(size, every)
    windows = Sliding(timedelta(microseconds=size), timedelta(microseconds=every),
                      offset=timedelta(microseconds=offset))  # fmt: skip
    grid = range(offset % every - 1000 * every, 1000, every)
    assert list(windows.starts(time)) == [at for at in grid if at <= time < at + size]


def test_what_windows_are_called() -> None:
    shown = [Tumbling("5 min"), Sliding("300 s", every="1 min", offset="500 ms"), Session(90)]
    assert list(map(str, shown)) == [
        "Tumbling('5 min')",
        "Sliding('5 min', every='1 min', offset='500 ms')",
        "Session('90 s')",
    ]
    assert Tumbling("5 min") == Tumbling("300 s")


# When they give results


def test_a_tumbling_window_gives_its_result_when_the_watermark_reaches_its_end(
    make: Make,
) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"))
    assert harness.push(("a", 1, at(0)), ("a", 2, at(9.999999)), ("a", 3, at(10))) == []
    assert harness.push(("b", 4, at(5))) == []
    assert harness.advance_watermark(at(10) - 2 * MICROSECOND) == []
    made = harness.advance_watermark(at(10) - MICROSECOND)
    assert sorted(made) == [
        ("a", at(0), at(10), "on_time", "[1, 2]"),
        ("b", at(0), at(10), "on_time", "[4]"),
    ]
    assert harness.state("b") == {}
    assert harness.timers("b") == []
    assert seconds(harness.advance_watermark(at(60))) == [(10, 20, "on_time", [3])]
    assert harness.state("a") == {}
    assert harness.advance_watermark(at(600)) == []


def test_a_record_belongs_to_several_sliding_windows(make: Make) -> None:
    harness = make(window=hf.windows.Sliding("10 s", every="5 s"))
    harness.push(("a", 1, at(1)), ("a", 2, at(7)))
    assert seconds(harness.advance_watermark(at(60))) == [
        (-5, 5, "on_time", [1]),
        (0, 10, "on_time", [1, 2]),
        (5, 15, "on_time", [2]),
    ]
    assert harness.state("a") == {}


def test_a_window_that_watermark_has_not_passed_takes_records_behind_it(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"))
    harness.push(("a", 1, at(1)))
    harness.advance_watermark(at(8))
    harness.push(("a", 2, at(2)))
    assert seconds(harness.advance_watermark(at(10))) == [(0, 10, "on_time", [1, 2])]
    assert harness.late_rows == 0


def test_sessions_end_after_the_gap(make: Make) -> None:
    harness = make(window=hf.windows.Session("5 s"))
    harness.push(("a", 1, at(0)), ("a", 2, at(5)), ("a", 3, at(10.000001)), ("b", 4, at(3)))
    assert harness.advance_watermark(at(7)) == []
    assert harness.advance_watermark(at(8)) == [("b", at(3), at(8), "on_time", "[4]")]
    assert seconds(harness.advance_watermark(at(10))) == [(0, 10, "on_time", [1, 2])]
    assert seconds(harness.advance_watermark(at(60))) == [
        (10.000001, 15.000001, "on_time", [3])
    ]
    assert harness.state("a") == {}
    assert harness.timers("a") == []


def test_a_record_between_two_sessions_makes_them_one(make: Make) -> None:
    harness = make(window=hf.windows.Session("5 s"))
    harness.push(("a", 1, at(8)), ("a", 2, at(0)), ("a", 3, at(30)))
    assert len(harness.state("a")["sessions"]) == 3
    harness.push(("a", 4, at(4)))
    assert len(harness.state("a")["sessions"]) == 2
    assert seconds(harness.advance_watermark(at(20))) == [(0, 13, "on_time", [1, 2, 4])]
    assert seconds(harness.advance_watermark(at(60))) == [(30, 35, "on_time", [3])]


def test_a_session_that_grows_in_both_directions(make: Make) -> None:
    harness = make(window=hf.windows.Session("5 s"))
    for number, time in enumerate([0, -4, 3, -8, 7]):
        harness.push(("a", number, at(time)))
    assert len(harness.timers("a")) == 1  # it does not follow every record
    assert harness.advance_watermark(at(11)) == []
    assert seconds(harness.advance_watermark(at(12))) == [(-8, 12, "on_time", [0, 1, 2, 3, 4])]
    assert harness.timers("a") == []


# Late records


def test_late_records_go_to_the_side(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"))
    harness.advance_watermark(at(10))
    assert harness.push(("a", 1, at(9)), ("a", 2, at(10)), ("a", 3, None)) == []
    # After the record: the watermark, how long ago it passed, the epoch and its begin, and the
    # window that the record has missed.
    facts = (harness.now, at(0), at(10))
    assert harness.side("late") == [
        ("a", 1, at(9), at(10), 1000, 1, *facts),
        ("a", 3, None, at(10), None, 1, harness.now, None, None),
    ]
    assert harness.late_rows == 2
    assert seconds(harness.advance_watermark(at(20))) == [(10, 20, "on_time", [2])]


def test_late_records_can_be_dropped_and_are_counted(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"), late="drop")
    harness.advance_watermark(at(10))
    assert harness.push(("a", 1, at(9))) == []
    assert harness.late_rows == 1
    with pytest.raises(JobDefinitionError, match="SIDE_OUTPUT_NOT_FOUND"):
        harness.side("late")


def test_a_record_is_late_if_all_of_its_windows_are_gone(make: Make) -> None:
    harness = make(window=hf.windows.Sliding("10 s", every="5 s"))
    harness.advance_watermark(at(10))
    harness.push(("a", 1, at(7)), ("a", 2, at(4)))
    (late,) = harness.side("late")
    assert late[:3] == ("a", 2, at(4))
    assert late[-2:] == (at(0), at(10))  # the last of its windows
    assert seconds(harness.advance_watermark(at(60))) == [(5, 15, "on_time", [1])]


def test_allowed_lateness(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"), allowed_lateness="5 s")
    harness.push(("a", 1, at(1)))
    assert seconds(harness.advance_watermark(at(12))) == [(0, 10, "on_time", [1])]
    assert seconds(harness.push(("a", 2, at(2)), ("a", 3, at(3)))) == [
        (0, 10, "late", [1, 2]),
        (0, 10, "late", [1, 2, 3]),
    ]
    # A window of which nothing was seen before its end has no result on time.
    assert harness.push(("b", 4, at(9))) == [("b", at(0), at(10), "late", "[4]")]
    assert harness.advance_watermark(at(15) - 2 * MICROSECOND) == []
    assert harness.state("a") and harness.state("b")
    assert harness.advance_watermark(at(15) - MICROSECOND) == []
    assert harness.state("a") == harness.state("b") == {}
    assert harness.push(("a", 5, at(9))) == []
    assert [row[:3] for row in harness.side("late")] == [("a", 5, at(9))]


def test_a_watermark_that_jumps_over_the_lateness_leaves_nothing_behind(make: Make) -> None:
    for window in (hf.windows.Tumbling("10 s"), hf.windows.Session("10 s")):
        harness = make(window=window, allowed_lateness="5 s")
        harness.push(("a", 1, at(0)))
        assert seconds(harness.advance_watermark(at(1000))) == [(0, 10, "on_time", [1])]
        assert harness.state("a") == {}
        assert harness.timers("a") == []


def test_late_records_make_a_session_grow(make: Make) -> None:
    harness = make(window=hf.windows.Session("5 s"), allowed_lateness="10 s")
    harness.push(("a", 1, at(0)))
    assert seconds(harness.advance_watermark(at(6))) == [(0, 5, "on_time", [1])]
    assert seconds(harness.push(("a", 2, at(1)))) == [(0, 6, "late", [1, 2])]
    # Now it goes on again, and ends again.
    assert harness.push(("a", 3, at(5))) == []
    assert seconds(harness.advance_watermark(at(10))) == [(0, 10, "on_time", [1, 2, 3])]
    assert harness.advance_watermark(at(19)) == []
    assert harness.state("a") != {}
    assert harness.advance_watermark(at(20)) == []
    assert harness.state("a") == {}
    assert harness.late_rows == 0


# Early results


def test_early_results_come_while_a_window_changes(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"), early="30 s")
    harness.push(("a", 1, at(1)), ("a", 2, at(11)))
    assert harness.advance_time("29 s") == []
    assert seconds(harness.advance_time("1 s")) == [
        (0, 10, "early", [1]),
        (10, 20, "early", [2]),
    ]
    assert harness.advance_time("30 s") == []  # nothing has changed
    harness.push(("a", 3, at(2)))
    assert seconds(harness.advance_time("30 s")) == [(0, 10, "early", [1, 3])]
    harness.push(("a", 4, at(3)), ("a", 5, at(12)))
    assert seconds(harness.advance_watermark(at(10))) == [(0, 10, "on_time", [1, 3, 4])]
    assert seconds(harness.advance_time("30 s")) == [(10, 20, "early", [2, 5])]
    assert seconds(harness.advance_watermark(at(20))) == [(10, 20, "on_time", [2, 5])]
    assert harness.advance_time("1 h") == []
    assert harness.state("a") == {}


def test_no_early_result_beside_the_last_one(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"), early="30 s")
    harness.push(("a", 1, at(1)))
    harness.watermark = at(10)
    assert seconds(harness.advance_time("30 s")) == [(0, 10, "on_time", [1])]
    assert harness.state("a") == {}


def test_early_results_of_sessions(make: Make) -> None:
    harness = make(window=hf.windows.Session("5 s"), early="30 s")
    harness.push(("a", 1, at(0)), ("a", 2, at(8)), ("a", 3, at(30)))
    harness.push(("a", 4, at(4)))
    assert seconds(harness.advance_time("30 s")) == [
        (0, 13, "early", [1, 2, 4]),
        (30, 35, "early", [3]),
    ]
    harness.push(("a", 5, at(31)))
    assert seconds(harness.advance_time("30 s")) == [(30, 36, "early", [3, 5])]
    assert seconds(harness.advance_watermark(at(60))) == [
        (0, 13, "on_time", [1, 2, 4]),
        (30, 36, "on_time", [3, 5]),
    ]


# Crashes


def test_windows_survive_a_crash_and_a_restore(make: Make) -> None:
    for window in (hf.windows.Sliding("10 s", every="5 s"), hf.windows.Session("10 s")):
        harness = make(window=window, allowed_lateness="3 s", early="1 min")
        harness.push(("a", 1, at(6)))
        harness.crash()
        harness.push(("a", 2, at(7)))
        kept = harness.snapshot()
        rest = []
        for _ in range(2):
            harness.crash()
            rest.append([
                *seconds(harness.advance_time("1 min")),
                *seconds(harness.advance_watermark(at(17))),
                *seconds(harness.push(("a", 3, at(6.5)))),
                *seconds(harness.advance_watermark(at(60))),
            ])  # fmt: skip
            assert harness.state("a") == {}
            harness.restore(kept)
        assert rest[0] == rest[1]
        assert {firing for _, _, firing, _ in rest[0]} == {"early", "on_time", "late"}


def test_a_failing_epoch_changes_no_window(make: Make) -> None:
    harness = make(window=hf.windows.Tumbling("10 s"))
    harness.push(("a", 1, at(1)))
    with pytest.raises(HoldfastError):
        harness.push(("a", 2, at(2)), ("a", "three", at(3)))
    assert seconds(harness.advance_watermark(at(10))) == [(0, 10, "on_time", [1])]


def test_a_windowed_process_travels_to_workers() -> None:
    built = windowed(
        Folded(),
        declared_windowing(Session("5 s"), "1 s", "1 s"),
        uid="step",
        schema=parse_columns(SCHEMA),
        event_time="ts",
    )
    copy = pickle.loads(pickle.dumps(built))
    assert type(copy).__name__ == "Folded"
    assert copy.windowing == built.windowing
    assert copy.sides == built.sides


# What a process sees


class AllColumns(hf.WindowProcess):
    output = "seen string"

    def process(self, window: Window, records: Sequence[Any], ctx: hf.Context) -> Iterator[Any]:
        for record in records:
            assert record["n"] == record.n
            yield (repr(record.as_dict()),)


def test_all_columns_are_kept_unless_it_is_said_which(backend: Any) -> None:
    harness = Harness(
        AllColumns(),
        SCHEMA,
        key="tag",
        event_time="ts",
        window=hf.windows.Tumbling("10 s"),
        backend=backend,
    )
    harness.push(("a", 1, at(1)), ("a", None, at(2)))
    assert harness.advance_watermark(at(10)) == [
        (repr({"tag": "a", "n": 1, "ts": at(1)}),),
        (repr({"tag": "a", "n": None, "ts": at(2)}),),
    ]


def test_kept_records_have_just_the_columns_that_are_kept() -> None:
    class Asks(Numbers):
        def process(self, window: Window, records: Sequence[Any], ctx: Any) -> Iterator[Any]:
            yield records[0].ts

    harness = Harness(
        Asks(), SCHEMA, key="tag", event_time="ts", window=hf.windows.Tumbling("10 s")
    )
    harness.push(("a", 1, at(1)))
    with pytest.raises(HoldfastError, match=r"no column 'ts'.* at .*test_windows"):
        harness.advance_watermark(at(10))


class Mean(hf.WindowProcess):
    """A plain accumulator, side outputs, a constant."""

    accumulator = "total double, n bigint"
    output = "tag string, mean double"
    sides = {"many": "tag string, n bigint"}

    def __init__(self, many: int) -> None:
        self.many = many

    def create(self) -> Any:
        return 0.0, 0

    def add(self, accumulator: Any, record: Any) -> Any:
        return accumulator.total + record.n, accumulator.n + 1

    def result(self, window: Window, accumulator: Any, ctx: hf.Context) -> Iterator[Any]:
        yield ctx.key, accumulator.total / accumulator.n
        if accumulator.n >= self.many:
            yield hf.to("many", ctx.key, accumulator.n)


def test_accumulators_have_names_from_the_first_record_on() -> None:
    harness = Harness(
        Mean(many=3), SCHEMA, key="tag", event_time="ts", window=hf.windows.Tumbling("10 s")
    )
    harness.push(("a", 1, at(0)), ("a", 2, at(0)), ("b", 3, at(0)), ("a", 6, at(0)))
    assert sorted(harness.advance_watermark(at(10))) == [("a", 3.0), ("b", 3.0)]
    assert harness.side("many") == [("a", 3)]


class Forgetful(Mean):
    def add(self, accumulator: Any, record: Any) -> Any:
        """Returns nothing."""


class Remembering(Mean):
    def add(self, accumulator: Any, record: Any) -> Any:
        self.last = record
        return accumulator


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (Forgetful(1), "Forgetful.add returned None"),
        (Remembering(1), "ATTRIBUTE_IS_NOT_STATE.*test_windows"),
    ],
)
def test_mistakes_in_a_process_are_named(process: Any, problem: str) -> None:
    harness = Harness(
        process, SCHEMA, key="tag", event_time="ts", window=hf.windows.Tumbling("10 s")
    )
    with pytest.raises(HoldfastError, match=problem):
        harness.push(("a", 1, at(0)))


# Refusals


class NothingDefined(hf.WindowProcess):
    output = "n bigint"


class NoAccumulator(Folded):
    accumulator = None  # type: ignore[assignment]


class BothWays(Folded):
    process = Numbers.process


class KeepsNothing(Folded):
    keep = "n bigint"


class KeepsUnknown(Numbers):
    keep = "m bigint"


class KeepsAnotherType(Numbers):
    keep = "n string"


class HasLate(Numbers):
    sides = {"late": "n bigint"}


class NoOutput(hf.WindowProcess):
    process = Numbers.process


class WithState(Numbers):
    total = hf.ValueState("bigint")


MINUTE = hf.windows.Tumbling("1 min")


@pytest.mark.parametrize(
    ("process", "options", "name"),
    [
        (NothingDefined(), {}, "PROCESS_NOT_DEFINED"),
        (NoAccumulator(), {}, "PROCESS_NOT_DEFINED"),
        (BothWays(), {}, "PROCESS_NOT_DEFINED"),
        (KeepsNothing(), {}, "INVALID_OPTION"),
        (KeepsUnknown(), {}, "INVALID_OPTION"),
        (KeepsAnotherType(), {}, "INVALID_OPTION"),
        (HasLate(), {}, "INVALID_NAME"),
        (NoOutput(), {}, "OUTPUT_NOT_DECLARED"),
        (WithState(), {}, "NOT_SUPPORTED"),
        (Mean(1), {"window": hf.windows.Session("1 min")}, "MERGE_MISSING"),
        (Mean(1), {"window": None}, "WRONG_ARGUMENT"),
        (Mean(1), {"window": "5 min"}, "WRONG_ARGUMENT"),
        (Mean(1), {"event_time": None}, "EVENT_TIME_MISSING"),
        (Mean(1), {"late": "process"}, "INVALID_OPTION"),
        (Mean(1), {"allowed_lateness": -1}, "INVALID_OPTION"),
        (Mean(1), {"early": "0 s"}, "INVALID_OPTION"),
        (hf.KeyedProcess(), {}, "WRONG_ARGUMENT"),
    ],
)
def test_refused_before_start(process: Any, options: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"event_time": "ts", "window": MINUTE} | options
    with pytest.raises(JobDefinitionError) as caught:
        Harness(process, SCHEMA, key="tag", **given)
    assert caught.value.name == name
    assert caught.value.fix


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Tumbling("0 s"),
        lambda: Tumbling(timedelta(seconds=-1)),
        lambda: Sliding("1 s", every="2 s"),
        lambda: Sliding("1 s", every=0),
        lambda: Session(0),
    ],
)
def test_windows_that_make_no_sense(declare: Any) -> None:
    with pytest.raises(JobDefinitionError, match="INVALID_OPTION"):
        declare()


# Against computations of another kind

Event = tuple[str, int, float]
"""A key, a number that no other event has, a time in seconds after noon."""


def brute_force(events: list[Event], windows: hf.windows.Tumbling | Any) -> Counter[Any]:
    """The final result of every window, from all events at once."""
    found: dict[Any, list[int]] = {}
    for tag in {tag for tag, _, _ in events}:
        own = sorted((time, number) for t, number, time in events if t == tag)
        if isinstance(windows, Session):
            gap, begin = windows.gap / 1e6, 0
            for place, (time, _) in enumerate(own):
                if place + 1 == len(own) or own[place + 1][0] - time > gap:
                    numbers = sorted(number for _, number in own[begin : place + 1])
                    found[tag, own[begin][0], time + gap] = numbers
                    begin = place + 1
        else:
            size, every = windows.size / 1e6, windows.every / 1e6
            for step in range(-1000, 1000):
                start = step * every
                numbers = sorted(n for time, n in own if start <= time < start + size)
                if numbers:
                    found[tag, start, start + size] = numbers
    return Counter((*window, repr(numbers)) for window, numbers in found.items())


WINDOWS = st.sampled_from(
    [
        Tumbling("10 s"),
        Sliding("10 s", every="4 s"),
        Sliding("6 s", every="2 s"),
        Session("5 s"),
    ]
)
PROCESSES = st.sampled_from([Numbers, Folded])
BACKENDS = st.sampled_from(["heap", "rocksdb"])
TAGS = st.sampled_from(["a", "b"])
EVENTS = st.lists(st.tuples(TAGS, st.integers(0, 60)), max_size=8)
"""Of one epoch: keys and times."""


def numbered(epochs: list[list[tuple[str, int]]]) -> list[list[Event]]:
    numbers = iter(range(10_000))
    return [[(tag, next(numbers), time) for tag, time in events] for events in epochs]


@settings(max_examples=60)
@given(WINDOWS, PROCESSES, BACKENDS, st.lists(EVENTS, max_size=8), st.data())
def test_results_equal_brute_force_if_nothing_is_late(
    windows: Any, process: Any, backend: Any, drawn: Any, data: st.DataObject
) -> None:
    epochs = numbered(drawn)
    harness = Harness(
        process(),
        SCHEMA,
        key="tag",
        event_time="ts",
        window=windows,
        delay="100 s",
        backend=backend,
    )
    for events in epochs:
        harness.push(*[(tag, number, at(time)) for tag, number, time in events])
        if data.draw(st.booleans(), label="crash"):
            harness.crash()
    harness.advance_watermark(at(1000))
    made = Counter(
        (tag, (start - NOON).total_seconds(), (end - NOON).total_seconds(), numbers)
        for tag, start, end, firing, numbers in harness.output
        if firing == "on_time"
    )
    assert made == brute_force([event for events in epochs for event in events], windows)
    assert made.total() == len(harness.output)
    assert harness.side("late") == []
    assert not any(harness.state(tag) or harness.timers(tag) for tag in "ab")


@dataclass
class Pane:
    start: float
    end: float
    numbers: list[int] = field(default_factory=list)
    ended: bool = False
    changed: bool = False


@dataclass
class Model:
    """What windows do, in the words of the documentation: lists, and nothing clever."""

    windows: Any
    lateness: float
    early: float | None
    panes: dict[str, list[Pane]] = field(default_factory=lambda: {"a": [], "b": []})
    tick: dict[str, float] = field(default_factory=dict)
    fired: Counter[Any] = field(default_factory=Counter)
    late: list[int] = field(default_factory=list)

    def epoch(self, events: list[Event], watermark: float, now: float) -> None:
        for tag, panes in self.panes.items():
            self._pass_time(tag, panes, watermark, now)
        for tag, number, time in events:
            if self._belongs(tag, number, time, watermark, now) == 0:
                self.late.append(number)

    def _pass_time(self, tag: str, panes: list[Pane], watermark: float, now: float) -> None:
        if self.tick.get(tag, now + 1) <= now:
            del self.tick[tag]
            for pane in panes:
                if pane.changed and pane.end > watermark:
                    self._fire(tag, pane, "early")
                pane.changed = False
        for pane in panes:
            if pane.end <= watermark and not pane.ended:
                self._fire(tag, pane, "on_time")
                pane.ended, pane.changed = True, False
        panes[:] = [pane for pane in panes if pane.end + self.lateness > watermark]

    def _belongs(self, tag: str, number: int, time: float, watermark: float, now: float) -> int:
        count = 0
        for start, end in self._places(time):
            pane = self._pane(tag, start, end)
            if pane.end + self.lateness <= watermark:
                self.panes[tag].remove(pane)
                continue
            count += 1
            pane.numbers.append(number)
            pane.ended = pane.end <= watermark
            if pane.ended:
                self._fire(tag, pane, "late")
            else:
                pane.changed = True
                if self.early:
                    self.tick.setdefault(tag, now - now % self.early + self.early)
        return count

    def _places(self, time: float) -> list[tuple[float, float]]:
        if isinstance(self.windows, Session):
            return [(time, time + self.windows.gap / 1e6)]
        assert isinstance(self.windows, AlignedWindows)
        size, every = self.windows.size / 1e6, self.windows.every / 1e6
        starts = [step * every for step in range(-100, 100)]
        return [(start, start + size) for start in starts if start <= time < start + size]

    def _pane(self, tag: str, start: float, end: float) -> Pane:
        """The window for a record; for sessions, all that it touches become one."""
        panes = self.panes[tag]
        if isinstance(self.windows, Session):
            own = [pane for pane in panes if pane.start <= end and pane.end >= start]
        else:
            own = [pane for pane in panes if pane.start == start]
        merged = Pane(
            min([start, *(pane.start for pane in own)]),
            max([end, *(pane.end for pane in own)]),
            [number for pane in own for number in pane.numbers],
            changed=any(pane.changed for pane in own),
        )
        self.panes[tag] = [pane for pane in panes if pane not in own] + [merged]
        return merged

    def _fire(self, tag: str, pane: Pane, firing: str) -> None:
        self.fired[tag, at(pane.start), at(pane.end), firing, repr(sorted(pane.numbers))] += 1


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(TAGS, st.integers(-20, 20)), max_size=6),
        st.sampled_from([0, 0, 1, 2, 5, 11]),
        st.sampled_from([0, 1, 3, 7]),
        st.booleans(),
    ),
    max_size=14,
)
"""Epochs: events by key and time around the watermark; how far the watermark and the clock go
before them; whether the worker crashes after them."""


@settings(max_examples=150)
@given(
    WINDOWS,
    PROCESSES,
    BACKENDS,
    st.sampled_from([0, 3, 12]),
    st.sampled_from([None, 4]),
    STEPS,
)
def test_firings_and_late_records_equal_the_model(
    windows: Any, process: Any, backend: Any, lateness: int, early: int | None, steps: Any
) -> None:
    harness = Harness(
        process(),
        SCHEMA,
        key="tag",
        event_time="ts",
        window=windows,
        allowed_lateness=lateness,
        early=early,
        backend=backend,
    )
    harness.now = NOON
    model = Model(windows, lateness, early)
    numbers = iter(range(10_000))
    watermark = now = 0
    for drawn, on, later, crash in steps:
        watermark, now = watermark + on, now + later
        events = [(tag, next(numbers), watermark + time) for tag, time in drawn]
        harness.watermark, harness.now = at(watermark), at(now)
        harness.push(*[(tag, number, at(time)) for tag, number, time in events])
        model.epoch(events, watermark, now)
        assert Counter(harness.output) == model.fired
        if crash:
            harness.crash()
    harness.advance_watermark(at(10_000))
    model.epoch([], 10_000, now)
    assert Counter(harness.output) == model.fired
    assert sorted(row[1] for row in harness.side("late")) == sorted(model.late)
    assert harness.late_rows == len(model.late)
    # Every record is in a window, or late.
    seen = {number for row in harness.output for number in eval(row[4])}
    assert seen.isdisjoint(model.late)
    assert len(seen) + len(model.late) == next(numbers)
    harness.now = at(10_000)
    assert harness.push() == []
    assert not any(harness.state(tag) or harness.timers(tag) for tag in "ab")
