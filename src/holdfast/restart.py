"""Restart strategies: what to do when an attempt fails."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config import Duration
from holdfast.errors import JobDefinitionError
from holdfast.types import parse_duration


@dataclass(frozen=True, kw_only=True)
class RestartStrategy:
    """Base of the strategies. Declared with the job; carried out by the supervisor."""


@dataclass(frozen=True, kw_only=True)
class NoRestart(RestartStrategy):
    """Fail at the first failure."""


@dataclass(frozen=True, kw_only=True)
class FixedDelay(RestartStrategy):
    """Try again `attempts` times, `delay` apart."""

    attempts: int = 3
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        _at_least_one("attempts", self.attempts)
        parse_duration(self.delay, "restart delay")


@dataclass(frozen=True, kw_only=True)
class FailureRate(RestartStrategy):
    """Try again unless there are more than `max_failures` within `per`."""

    max_failures: int = 3
    per: Duration = "5 min"
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        _at_least_one("max_failures", self.max_failures)
        parse_duration(self.per, "failure rate interval")
        parse_duration(self.delay, "restart delay")


@dataclass(frozen=True, kw_only=True)
class ExponentialDelay(RestartStrategy):
    """Wait longer after each failure, up to `maximum`; start over after `reset` of health."""

    initial: Duration = "10 s"
    factor: float = 1.4
    maximum: Duration = "2 min"
    reset: Duration = "10 min"
    jitter: float = 0.1

    def __post_init__(self) -> None:
        for what in ("initial", "maximum", "reset"):
            parse_duration(getattr(self, what), f"restart {what}")
        if self.factor < 1 or not 0 <= self.jitter < 1:
            raise JobDefinitionError(
                "INVALID_RESTART_STRATEGY",
                f"ExponentialDelay has factor={self.factor}, jitter={self.jitter}.",
                fix="use a factor of at least 1 and a jitter from 0 to below 1.",
            )


def _at_least_one(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise JobDefinitionError(
            "INVALID_RESTART_STRATEGY",
            f"{name} is {value!r}.",
            fix=f"use a whole number of at least 1 for {name}, or hf.NoRestart().",
        )
