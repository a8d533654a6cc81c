"""What holds for every strategy and every history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.failure import FailureClass
from holdfast.restart import Failure

START = datetime(2026, 1, 1, tzinfo=UTC)
HEALING = [each for each in FailureClass if each.can_heal]


@st.composite
def histories(draw: st.DrawFn) -> list[Failure]:
    gaps = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
    at, found = START, []
    for gap in gaps:
        at += timedelta(seconds=gap)
        healthy = timedelta(seconds=draw(st.integers(0, gap)))
        what = draw(st.sampled_from(HEALING))
        found.append(Failure(at=at, failure_class=what, healthy_for=healthy))
    return found


@given(histories(), st.integers(1, 10))
def test_fixed_delay_restarts_exactly_so_often(history: list[Failure], attempts: int) -> None:
    decision = hf.FixedDelay(attempts=attempts, delay="1 s").decide(history, chance=0)
    assert decision.restart == (len(history) <= attempts)


@given(histories(), st.integers(1, 10), st.integers(1, 500))
def test_failure_rate_is_the_number_in_the_window(
    history: list[Failure], most: int, per: int
) -> None:
    decision = hf.FailureRate(max_failures=most, per=per, delay=1).decide(history, chance=0)
    recent = [f for f in history if history[-1].at - f.at < timedelta(seconds=per)]
    assert decision.restart == (len(recent) <= most)


@given(histories(), st.floats(0, 1), st.floats(1, 3), st.floats(0, 0.5))
def test_exponential_delay_stays_in_its_bounds(
    history: list[Failure], chance: float, factor: float, jitter: float
) -> None:
    strategy = hf.ExponentialDelay(
        initial="2 s", factor=factor, maximum="60 s", reset="100 s", jitter=jitter
    )
    decision = strategy.decide(history, chance=chance)
    assert decision.restart
    seconds = decision.delay.total_seconds()
    assert 2 * (1 - jitter) - 1e-6 <= seconds <= 60 * (1 + jitter) + 1e-6
    if history[-1].healthy_for >= timedelta(seconds=100):
        assert seconds <= 2 * (1 + jitter) + 1e-6
