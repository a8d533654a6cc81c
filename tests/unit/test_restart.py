"""Restart strategies and classes of failures: pure decisions over a history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast.errors import (
    BadRecordError,
    ConflictError,
    CorruptionError,
    EnvironmentProblem,
    HoldfastError,
    JobDefinitionError,
    RunFailedError,
    UserCodeError,
)
from holdfast.failure import FailureClass, classify
from holdfast.restart import Failure, RestartStrategy
from holdfast.state.trouble import user_error

START = datetime(2026, 1, 1, tzinfo=UTC)


def failures(
    *seconds: float,
    what: FailureClass = FailureClass.UNKNOWN,
    healthy: float = 0,
) -> list[Failure]:
    return [
        Failure(
            at=START + timedelta(seconds=at),
            failure_class=what,
            healthy_for=timedelta(seconds=healthy),
        )
        for at in seconds
    ]


def delay(
    strategy: RestartStrategy, history: list[Failure], chance: float = 0.5
) -> float | None:
    decision = strategy.decide(history, chance=chance)
    assert decision.reason
    return decision.delay.total_seconds() if decision.restart else None


def test_no_restart() -> None:
    assert delay(hf.NoRestart(), failures(0)) is None


def test_fixed_delay_counts_from_the_start() -> None:
    strategy = hf.FixedDelay(attempts=2, delay="3 s")
    assert [delay(strategy, failures(*range(n))) for n in (1, 2, 3)] == [3, 3, None]


def test_failure_rate_looks_at_a_window() -> None:
    strategy = hf.FailureRate(max_failures=2, per="60 s", delay="1 s")
    assert delay(strategy, failures(0, 10)) == 1
    assert delay(strategy, failures(0, 10, 20)) is None
    assert delay(strategy, failures(0, 10, 61)) == 1


def test_exponential_delay_grows_to_its_maximum() -> None:
    strategy = hf.ExponentialDelay(initial="1 s", factor=2, maximum="5 s", jitter=0)
    assert [delay(strategy, failures(*range(n))) for n in range(1, 6)] == [1, 2, 4, 5, 5]
    assert delay(strategy, failures(*range(10_000))) == 5


def test_exponential_delay_starts_over_after_health() -> None:
    strategy = hf.ExponentialDelay(initial="1 s", factor=2, reset="60 s", jitter=0)
    ill, well = failures(1, 2, 3), failures(200, healthy=60)
    assert delay(strategy, ill + well) == 1
    assert delay(strategy, [*ill, *well, *failures(201)]) == 2
    assert delay(strategy, ill + failures(200, healthy=59)) == 8


def test_exponential_delay_is_spread_by_chance() -> None:
    strategy = hf.ExponentialDelay(initial="10 s", jitter=0.1)
    found = [delay(strategy, failures(0), chance) for chance in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([9, 10, 11])


@pytest.mark.parametrize("what", [each for each in FailureClass if not each.can_heal])
def test_what_cannot_heal_is_final_unless_told_otherwise(what: FailureClass) -> None:
    history = failures(0, what=what)
    assert delay(hf.FixedDelay(delay="1 s"), history) is None
    assert delay(hf.FixedDelay(delay="1 s", also_retry=[what]), history) == 1
    assert delay(hf.FixedDelay(delay="1 s", also_retry=[what.value]), history) == 1


def test_unknown_class_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match=r"INVALID_RESTART_STRATEGY.*'nonsense'"):
        hf.FixedDelay(also_retry=["nonsense"])


def _wrapped(cause: Exception) -> Exception:
    """As libraries do."""
    error = ValueError("the request failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UserCodeError("USER_FUNCTION_FAILED", ""), FailureClass.CODE),
        (user_error(ConnectionRefusedError("no"), "s", None), FailureClass.DEPENDENCY),
        (user_error(TimeoutError(), "s", None), FailureClass.DEPENDENCY),
        (user_error(_wrapped(TimeoutError()), "s", None), FailureClass.DEPENDENCY),
        (user_error(_wrapped(KeyError("user")), "s", None), FailureClass.CODE),
        (JobDefinitionError("DUPLICATE_UID", ""), FailureClass.CODE),
        (BadRecordError("BAD_RECORD", ""), FailureClass.BAD_RECORD),
        (CorruptionError("CHECKPOINT_DAMAGED", ""), FailureClass.CORRUPTION),
        (ConflictError("FENCED", ""), FailureClass.CONFLICT),
        (EnvironmentProblem("OUT_OF_MEMORY", ""), FailureClass.RESOURCE),
        (EnvironmentProblem("PYTHON_WORKER_DIED", ""), FailureClass.LOST_WORKER),
        (RunFailedError("DRIVER_DIED", ""), FailureClass.LOST_DRIVER),
        (RunFailedError("EPOCH_TIMEOUT", ""), FailureClass.HUNG),
        (
            RunFailedError("QUERY_FAILED", "ended", detail="ConnectException: refused"),
            FailureClass.DEPENDENCY,
        ),
        (
            RunFailedError("QUERY_FAILED", "ended", detail="ExecutorLostFailure (executor 1"),
            FailureClass.LOST_WORKER,
        ),
        (RunFailedError("QUERY_FAILED", "something else"), FailureClass.UNKNOWN),
    ],
)
def test_classes(error: HoldfastError, expected: FailureClass) -> None:
    assert classify(error) is expected
    # The same after a trip between processes.
    assert classify(HoldfastError.from_json(error.to_json())) is expected
