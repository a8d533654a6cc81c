"""How long state lives: each value, map entry or list element has a time of expiry.

The clock stands still during an epoch, and what has expired is removed before any user code
runs. So user code never sees expired state, and reading needs no check.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.times import CLOCKS, EVENT, Clock
from holdfast.types import parse_duration

if TYPE_CHECKING:
    from holdfast.state.handles import Cursor

_NEVER = 2**62


@dataclass(frozen=True, init=False)
class Ttl:
    """State that is forgotten after a while: ``ValueState("bigint", ttl=hf.Ttl("1 h"))``.

    `since` says from when the time counts: the last "write" (default) or the last "read" or
    write. `clock` is "processing" (default) or "event", where state expires as the watermark
    passes. Each entry of a MapState and each element of a ListState has its own time.
    """

    micros: int
    since: Literal["write", "read"]
    clock: Clock

    def __init__(
        self,
        duration: str | timedelta | float,
        *,
        since: Literal["write", "read"] = "write",
        clock: Clock = "processing",
    ) -> None:
        length = parse_duration(duration, "ttl")
        if length <= timedelta(0):
            raise _invalid(f"ttl is {shorten(duration)}", "give a duration above zero")
        if since not in ("write", "read"):
            raise _invalid(f"ttl since={shorten(since)}", 'use "write" or "read"')
        if clock not in CLOCKS:
            raise _invalid(f"ttl clock={shorten(clock)}", 'use "processing" or "event"')
        object.__setattr__(self, "micros", length // timedelta(microseconds=1))
        object.__setattr__(self, "since", since)
        object.__setattr__(self, "clock", clock)


TtlLike = Ttl | str | timedelta | float | None


def parse_ttl(ttl: TtlLike) -> Ttl | None:
    return ttl if ttl is None or isinstance(ttl, Ttl) else Ttl(ttl)


def _invalid(what: str, fix: str) -> JobDefinitionError:
    return JobDefinitionError("INVALID_OPTION", f"{what}.", fix=f"{fix}.")


class Lifetime:
    """Gives out times of expiry for one state variable."""

    __slots__ = ("_cursor", "_ttl", "forward", "on_read")

    def __init__(self, ttl: Ttl, cursor: Cursor) -> None:
        self._ttl, self._cursor = ttl, cursor
        self.on_read = ttl.since == "read"
        self.forward = ttl.clock != EVENT
        """Whether each expiry is at or after the one before: records come out of order."""

    def expiry(self) -> int:
        """When something written now expires: always later than now."""
        cursor = self._cursor
        if self._ttl.clock == EVENT:
            # Before the first watermark the record's own time is all there is.
            known = [time for time in (cursor.event_time, cursor.time.watermark) if time]
            return max(known) + self._ttl.micros if known else _NEVER
        assert cursor.time.now is not None
        return cursor.time.now + self._ttl.micros


def earliest(times: Any) -> int:
    """The first time in a stored time: a number, a list of them, or a map to them."""
    if isinstance(times, int):
        return times
    first: int = min(times.values() if isinstance(times, MutableMapping) else times)
    return first


def sweep(values: Any, expiries: Any, until: int) -> tuple[Any, Any]:
    """What is left of a value and its expiries at `until`; (None, None): nothing."""
    if isinstance(expiries, int):
        return (values, expiries) if expiries > until else (None, None)
    if isinstance(expiries, MutableMapping):
        for entry in [entry for entry, time in expiries.items() if time <= until]:
            del expiries[entry], values[entry]
        return (values, expiries) if len(expiries) else (None, None)
    standing = [(v, time) for v, time in zip(values, expiries, strict=True) if time > until]
    if not standing:
        return None, None
    return [v for v, _ in standing], [time for _, time in standing]
