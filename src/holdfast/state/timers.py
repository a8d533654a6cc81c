"""Timers of a key: what user code registers, deletes and is called with."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.blocks import StateVariable, Table
from holdfast.state.times import Clock, micros, moment

if TYPE_CHECKING:
    from holdfast.state.backend import Group, Queue
    from holdfast.state.handles import Cursor


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires: handed to ``on_timer``."""

    time: datetime
    clock: Clock


def timer_variable(clock: Clock) -> StateVariable:
    """Where a key's pending timers are kept: a sorted list of times."""
    # No state of a user can have this name: it is no Python identifier.
    return StateVariable(f"!{clock}", pa.list_(pa.int64()), clock=clock)


def is_timer(variable: StateVariable) -> bool:
    return variable.name.startswith("!")


class Timers:
    """``ctx.timers``: the pending timers of the current key.

    Timers of a key are told apart by time and clock: registering one twice is registering it
    once. They are state: they survive crashes and move with their key.
    """

    __slots__ = ("_cursor", "_group", "_places")

    def __init__(self, cursor: Cursor, places: Mapping[Clock, int]) -> None:
        self._cursor, self._places = cursor, places

    def attach(self, group: Group) -> None:
        self._group = group

    def register(self, at: datetime, clock: Clock | None = None) -> None:
        """Call ``on_timer`` for this key when the clock reaches `at`.

        `clock` is "event" (the watermark) or "processing"; it can be left out where a step has
        just one. A time that is past already fires in the next epoch.
        """
        time = micros(at, "a timer")
        table, queue = self._of(clock)
        key = self._touched()
        pending = table.get(key)
        if pending is None:
            table[key] = [time]
        elif time not in pending:
            insort(pending, time)
        queue.note(time, key)

    def delete(self, at: datetime, clock: Clock | None = None) -> None:
        """Forget a timer; it is no error if there is none."""
        table, _ = self._of(clock)
        self._remove(table, micros(at, "a timer"))

    def pending(self, clock: Clock | None = None) -> list[datetime]:
        """The times at which timers of this key are due, earliest first."""
        table, _ = self._of(clock)
        return [moment(time) for time in table.get(self._cursor.key, ())]

    def take(self, clock: Clock, time: int) -> bool:
        """Remove a timer of the current key that is about to fire; False: it was deleted."""
        table, _ = self._of(clock)
        return self._remove(table, time)

    def _remove(self, table: Table, time: int) -> bool:
        pending = table.get(self._cursor.key, [])
        at = bisect_left(pending, time)
        if at == len(pending) or pending[at] != time:
            return False
        key = self._touched()
        del pending[at]
        if not pending:
            del table[key]
        return True

    def _of(self, clock: Clock | None) -> tuple[Table, Queue]:
        if clock is None and len(self._places) == 1:
            clock = next(iter(self._places))
        at = self._places.get(clock) if clock is not None else None
        if at is None:
            raise JobDefinitionError(
                "TIMER_CLOCK_NOT_DECLARED",
                f"a timer asks for the clock {shorten(clock)}; the step has timers of: "
                f"{', '.join(self._places) or 'none'}.",
                fix='say which ones the process uses: `timers = "event"`, "processing" or '
                '"both", and define on_timer. Event time needs flow.watermark on the input.',
            )
        return self._group.tables[at], self._group.queues[at]

    def _touched(self) -> Any:
        self._group.touch(self._cursor.key)
        return self._cursor.key
