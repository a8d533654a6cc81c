"""When a driver counts as hung: a pure decision over times."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.errors import RunFailedError

HEARTBEAT_TIMEOUT_SECONDS = 30.0
START_TIMEOUT_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Signs:
    """Signs of life of a driver, in seconds of a monotonic clock."""

    heard: float
    """The last heartbeat."""
    starting_since: float | None = None
    """None once its query runs."""
    epoch: int | None = None
    epoch_began: float | None = None
    """When the epoch that is running now began; None between epochs."""
    waiting: bool = False
    """For executors. The time does not count as the epoch's."""

    def started(self) -> Signs:
        return replace(self, starting_since=None)

    def trigger(self, active: bool, now: float) -> Signs:
        """Spark is at work on an epoch, or not. It may be stuck before the epoch's rows are
        computed: while it asks a source what there is, or writes to its log."""
        if not active:
            return replace(self, epoch_began=None)
        return self if self.epoch_began is not None else replace(self, epoch_began=now)

    def epoch_started(self, epoch: int, now: float) -> Signs:
        return replace(self, epoch=epoch, epoch_began=now)

    def epoch_ended(self, epoch: int) -> Signs:
        """Spark reports the end of an epoch when the next one may have begun already; that one
        goes on."""
        return replace(self, epoch_began=None) if epoch == self.epoch else self

    def executors_gone(self) -> Signs:
        return replace(self, waiting=True)

    def executors_back(self, now: float) -> Signs:
        """The epoch has as much time again as it had at its beginning."""
        began = None if self.epoch_began is None else now
        return replace(self, waiting=False, epoch_began=began)


def overdue(
    signs: Signs,
    now: float,
    *,
    epoch_timeout: float | None,
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT_SECONDS,
    start_timeout: float = START_TIMEOUT_SECONDS,
) -> RunFailedError | None:
    """Why a driver must be given up, if it must."""
    silent = now - signs.heard
    if silent > heartbeat_timeout:
        return RunFailedError(
            "DRIVER_HUNG",
            f"the driver has given no sign of life for {silent:.0f} s.",
            fix="see the attempt's log; a process that is stopped or swaps looks like this.",
        )
    if signs.starting_since is not None and now - signs.starting_since > start_timeout:
        return RunFailedError(
            "START_TIMEOUT",
            f"the driver has been starting for {now - signs.starting_since:.0f} s; the setting "
            f"start_timeout allows {start_timeout:g} s.",
            fix="find what it waits for in the attempt's log. A restore of much state that "
            "really takes so long needs a larger start_timeout.",
        )
    if epoch_timeout is None or signs.epoch_began is None or signs.waiting:
        return None
    took = now - signs.epoch_began
    if took <= epoch_timeout:
        return None
    return RunFailedError(
        "EPOCH_TIMEOUT",
        f"an epoch has been running for {took:.0f} s; the job allows {epoch_timeout:g} s.",
        fix="raise CheckpointConfig(timeout=…), make epochs smaller, or find what it waits for "
        "in the attempt's log.",
        epoch=signs.epoch,
    )
