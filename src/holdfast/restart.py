"""Restart strategies: what to do when an attempt fails.

Pure: a strategy decides from the failures so far and their times, the supervisor obeys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.config import Duration
from holdfast.errors import JobDefinitionError, shorten
from holdfast.failure import FailureClass
from holdfast.types import parse_duration


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An attempt that failed."""

    at: datetime
    failure_class: FailureClass
    healthy_for: timedelta = timedelta(0)
    """How long it had run, from its first committed epoch on."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do after a failure."""

    restart: bool
    delay: timedelta = timedelta(0)
    reason: str
    """In words, for the history."""


@dataclass(frozen=True, kw_only=True)
class RestartStrategy:
    """Base of the strategies. Declared with the job; carried out by the supervisor.

    A failure that cannot heal by itself (code, bad_record, corruption, conflict) is final,
    whatever the strategy, unless `also_retry` names its class.
    """

    also_retry: Collection[FailureClass | str] = ()

    def __post_init__(self) -> None:
        for name in self.also_retry:
            if name not in set(FailureClass):
                raise JobDefinitionError(
                    "INVALID_RESTART_STRATEGY",
                    f"also_retry names {shorten(name)}, which is no class of failures.",
                    fix=f"use some of {', '.join(FailureClass)}.",
                )

    def decide(self, failures: Sequence[Failure], *, chance: float) -> Decision:
        """After `failures`, oldest first, since the job was started by hand.

        `chance` is a number from 0 to 1 for strategies that spread their delays.
        """
        last = failures[-1].failure_class
        if not last.can_heal and last not in set(self.also_retry):
            return Decision(
                restart=False, reason=f"a failure of class {last} does not heal by retrying"
            )
        return self._decide(failures, chance)

    def _decide(self, failures: Sequence[Failure], chance: float) -> Decision:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NoRestart(RestartStrategy):
    """Fail at the first failure."""

    def _decide(self, failures: Sequence[Failure], chance: float) -> Decision:
        return Decision(restart=False, reason="the job's strategy is not to restart")


@dataclass(frozen=True, kw_only=True)
class FixedDelay(RestartStrategy):
    """Try again `attempts` times, `delay` apart. They are counted from the start by hand."""

    attempts: int = 3
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one("attempts", self.attempts)
        parse_duration(self.delay, "restart delay")

    def _decide(self, failures: Sequence[Failure], chance: float) -> Decision:
        if len(failures) > self.attempts:
            return Decision(restart=False, reason=f"all {self.attempts} restarts are used up")
        return Decision(
            restart=True,
            delay=parse_duration(self.delay),
            reason=f"restart {len(failures)} of {self.attempts}",
        )


@dataclass(frozen=True, kw_only=True)
class FailureRate(RestartStrategy):
    """Try again unless there are more than `max_failures` within `per`."""

    max_failures: int = 3
    per: Duration = "5 min"
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one("max_failures", self.max_failures)
        parse_duration(self.per, "failure rate interval")
        parse_duration(self.delay, "restart delay")

    def _decide(self, failures: Sequence[Failure], chance: float) -> Decision:
        since = failures[-1].at - parse_duration(self.per)
        recent = sum(failure.at > since for failure in failures)
        said = f"{recent} failures within {self.per}, {self.max_failures} are allowed"
        if recent > self.max_failures:
            return Decision(restart=False, reason=said)
        return Decision(restart=True, delay=parse_duration(self.delay), reason=said)


@dataclass(frozen=True, kw_only=True)
class ExponentialDelay(RestartStrategy):
    """Wait longer after each failure, up to `maximum`; start over after `reset` of health."""

    initial: Duration = "10 s"
    factor: float = 1.4
    maximum: Duration = "2 min"
    reset: Duration = "10 min"
    jitter: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("initial", "maximum", "reset"):
            parse_duration(getattr(self, what), f"restart {what}")
        if self.factor < 1 or not 0 <= self.jitter < 1:
            raise JobDefinitionError(
                "INVALID_RESTART_STRATEGY",
                f"ExponentialDelay has factor={self.factor}, jitter={self.jitter}.",
                fix="use a factor of at least 1 and a jitter from 0 to below 1.",
            )

    def _decide(self, failures: Sequence[Failure], chance: float) -> Decision:
        reset = parse_duration(self.reset)
        in_a_row = 0
        for failure in reversed(failures):
            in_a_row += 1
            if failure.healthy_for >= reset:
                break
        maximum = parse_duration(self.maximum).total_seconds()
        wanted = parse_duration(self.initial).total_seconds()
        for _ in range(in_a_row - 1):
            wanted = min(wanted * self.factor, maximum)  # a power would overflow some day
        spread = 1 + self.jitter * (2 * chance - 1)
        delay = timedelta(seconds=min(wanted, maximum) * spread)
        return Decision(restart=True, delay=delay, reason=f"failure {in_a_row} in a row")


def _at_least_one(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise JobDefinitionError(
            "INVALID_RESTART_STRATEGY",
            f"{name} is {value!r}.",
            fix=f"use a whole number of at least 1 for {name}, or hf.NoRestart().",
        )
