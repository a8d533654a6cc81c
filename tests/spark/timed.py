"""Processes that use time, for jobs in the tests' JVM."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import holdfast as hf

GAP = timedelta(seconds=60)


class Sessions(hf.KeyedProcess):
    """A row per session: it ends when a user has been quiet for a minute of event time.

    It works for records in any order as long as none is late, so its output does not depend
    on how they are cut into epochs.
    """

    edits = hf.ListState("timestamp")
    output = "user string, first timestamp, last timestamp, edits bigint"

    def process(self, record: Any, ctx: hf.Context) -> None:
        self.edits.add(record.ts)
        ctx.timers.register(record.ts + GAP)

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        times = sorted(self.edits.get())
        ends = [
            at
            for at, time in enumerate(times)
            if at + 1 == len(times) or times[at + 1] - time >= GAP
        ]
        first = 0
        for end in ends:
            if times[end] + GAP > timer.time:
                break
            yield ctx.key, times[first], times[end], end + 1 - first
            first = end + 1
        self.edits.update(times[first:])


class Recent(hf.KeyedProcess):
    """How often a user edited within a minute of event time, by TTL."""

    edits = hf.MapState("bigint", "boolean", ttl=hf.Ttl("1 min", clock="event"))
    output = "id bigint, recent bigint"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        self.edits[record.id] = True
        yield record.id, len(self.edits)


class Remind(hf.KeyedProcess):
    """A reminder after `n` milliseconds of processing time."""

    seen = hf.ValueState("bigint", default=0)
    output = "user string, seen bigint, waited_ms bigint"

    def process(self, record: Any, ctx: hf.Context) -> None:
        self.seen.value += 1
        ctx.timers.register(ctx.now + timedelta(milliseconds=record.n))

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        yield ctx.key, self.seen.value, (ctx.now - timer.time) // timedelta(milliseconds=1)


class Both(hf.KeyedProcess):
    """One timer of each kind per record."""

    timers = "both"
    output = "user string, clock string"

    def process(self, record: Any, ctx: hf.Context) -> None:
        ctx.timers.register(record.ts + timedelta(seconds=1), "event")
        ctx.timers.register(ctx.now + timedelta(milliseconds=1), "processing")

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        yield ctx.key, timer.clock


class Forgets(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0, ttl="3 s")
    output = "n bigint, total bigint, now timestamp"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        self.total.value += record.n
        yield record.n, self.total.value, ctx.now


class LateAware(hf.KeyedProcess):
    output = "id bigint, late boolean"

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        yield record.id, ctx.is_late(record)


class Flag(hf.KeyedProcess):
    """Says which edits are larger than the limit, and how many of the user were so far."""

    limits = hf.BroadcastState("string", "bigint")
    flagged = hf.ValueState("bigint", default=0)
    output = "id bigint, limit bigint, flagged bigint"

    def on_broadcast(self, row: Any, ctx: hf.Context) -> None:
        if row.limit is None:
            self.limits.pop(row.name, None)
        else:
            self.limits[row.name] = row.limit

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        limit = self.limits.get("bytes")
        if limit is not None and record.n > limit:
            self.flagged.value += 1
        yield record.id, limit, self.flagged.value


class Past(hf.KeyedProcess):
    """Registers a timer that is past already; it says which record registered it."""

    output = "id bigint"

    def process(self, record: Any, ctx: hf.Context) -> None:
        hour_ago = record.ts.replace(microsecond=0) - timedelta(hours=1)
        ctx.timers.register(hour_ago + timedelta(microseconds=record.id))

    def on_timer(self, timer: hf.Timer, ctx: hf.Context) -> Iterator[Any]:
        yield (timer.time.microsecond,)
