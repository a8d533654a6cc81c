"""The steps that windows run in: a :class:`KeyedProcess` around a user's WindowProcess.

A window is over when the watermark reaches its last microsecond. Timers go before the records
of an epoch, so during the records every window is where the watermark says: open, finished but
kept for late records, or gone. Nothing about that is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from holdfast.event_time.contents import Contents
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.event_time.windows import AlignedWindows, Firing, Session, Window
from holdfast.state.declare import MapState, State
from holdfast.state.late import LATE, explain
from holdfast.state.process import Context, KeyedProcess, Routed
from holdfast.state.timers import Timer
from holdfast.state.times import EVENT, PROCESSING, micros, moment


class WindowStep(KeyedProcess):
    """What both kinds of windows have in common."""

    changed: Any
    """With `early`: homes of the windows that have changed since the clock last asked for early
    results, gone ones among them. While there are any, a timer is set."""

    def __init__(
        self,
        windowing: Windowing,
        process: WindowProcess,
        contents: Contents,
        late: LateWindowPolicy,
    ) -> None:
        self.windowing, self._process, self._contents = windowing, process, contents
        self._early, self._lateness = windowing.early, windowing.allowed_lateness
        self._late_to_side = late == "side"

    @classmethod
    def own_states(cls, windowing: Windowing) -> dict[str, State]:
        """What a step keeps beside the contents of its windows."""
        return {"changed": MapState("bigint", "boolean")} if windowing.early else {}

    def open(self) -> None:
        self._contents.open(self)
        self._process.open()
        self._process.__dict__["_running"] = True

    def on_timer(self, timer: Timer, ctx: Context) -> Iterator[Any]:
        if timer.clock == EVENT:
            yield from self._on_watermark(micros(timer.time), ctx)
            return
        for start, end, home in self._open_windows(ctx.time.of(EVENT)):
            if home in self.changed:
                yield from self._fire(start, end, home, "early", ctx)
        self.changed.clear()

    def _on_watermark(self, time: int, ctx: Context) -> Iterator[Any]:
        """The watermark has reached `time`, at which a timer was set."""
        raise NotImplementedError

    def _open_windows(self, watermark: int) -> list[tuple[int, int, int]]:
        """Start, end and home of the windows that go on, earliest first; those that have not
        changed may be left out."""
        raise NotImplementedError

    def _fire(
        self, start: int, end: int, home: int, firing: Firing, ctx: Context
    ) -> Iterable[Any]:
        return self._contents.rows(home, Window(moment(start), moment(end), firing), ctx)

    def _late(self, record: Any, window: tuple[int, int] | None, ctx: Context) -> Iterator[Any]:
        """`window`: the last one that the record would have been in, if it has a time."""
        ctx.late_rows += 1
        if self._late_to_side:
            missed = (None, None) if window is None else map(moment, window)
            yield Routed(LATE, (*record, *explain(ctx.event_time, ctx.time), *missed))

    def _note_change(self, home: int, ctx: Context) -> None:
        if self._early and home not in self.changed:
            if not self.changed:
                # On a grid, so that the keys of a group are looked at together.
                now = ctx.time.of(PROCESSING)
                ctx.timers.register(moment(now - now % self._early + self._early), PROCESSING)
            self.changed[home] = True


class AlignedStep(WindowStep):
    """Tumbling and sliding windows. A window's home is its start."""

    def __init__(self, windowing: Windowing, *rest: Any) -> None:
        super().__init__(windowing, *rest)
        self._windows = cast(AlignedWindows, windowing.windows)
        self._to_last = self._windows.size - 1

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        time, watermark = ctx.event_time, ctx.time.of(EVENT)
        belongs = () if time is None else self._windows.starts(time)
        kept = [
            start for start in belongs if start + self._to_last + self._lateness > watermark
        ]
        if not kept:
            last = max(belongs, default=None)
            window = None if last is None else (last, last + self._windows.size)
            yield from self._late(record, window, ctx)
        for start in kept:
            last = start + self._to_last
            finished = last <= watermark
            if self._contents.add(start, record):
                ctx.timers.register(moment(last + self._lateness if finished else last), EVENT)
            if finished:
                yield from self._fire(start, last + 1, start, "late", ctx)
            else:
                self._note_change(start, ctx)

    def _on_watermark(self, time: int, ctx: Context) -> Iterator[Any]:
        ending = time - self._to_last
        if self._contents.has(ending):
            yield from self._fire(ending, time + 1, ending, "on_time", ctx)
            if time + self._lateness > ctx.time.of(EVENT):
                ctx.timers.register(moment(time + self._lateness), EVENT)
            else:
                self._contents.remove(ending)
        leaving = ending - self._lateness
        if self._lateness and self._contents.has(leaving):
            self._contents.remove(leaving)

    def _open_windows(self, watermark: int) -> list[tuple[int, int, int]]:
        size = self._windows.size
        return [
            (start, start + size, start)
            for start in sorted(self.changed)
            if start + self._to_last > watermark
        ]


class SessionStep(WindowStep):
    """Sessions.

    A session grows with nearly every record, so its timer does not follow it: it is moved when
    it fires too early. `due` is where a session's timer stands.
    """

    sessions: Any
    """By start: the end, the home, and the time of the timer."""

    def __init__(self, windowing: Windowing, *rest: Any) -> None:
        super().__init__(windowing, *rest)
        self._gap = cast(Session, windowing.windows).gap

    @classmethod
    def own_states(cls, windowing: Windowing) -> dict[str, State]:
        sessions = MapState("bigint", "end bigint, home bigint, due bigint")
        return {"sessions": sessions, **super().own_states(windowing)}

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        time, watermark = ctx.event_time, ctx.time.of(EVENT)
        if time is None:
            yield from self._late(record, None, ctx)
            return
        touched = self._touched(time)
        if not touched and time + self._gap - 1 + self._lateness <= watermark:
            yield from self._late(record, (time, time + self._gap), ctx)
            return
        start = min([time, *(start for start, _ in touched)])
        end = max([time + self._gap, *(session.end for _, session in touched)])
        home = self._united(touched) if touched else time
        self._contents.add(home, record)
        finished = end - 1 <= watermark
        wanted = end - 1 + (self._lateness if finished else 0)
        due = min([wanted, *(session.due for _, session in touched)])
        if due == wanted:
            ctx.timers.register(moment(due), EVENT)
        self.sessions[start] = end, home, due
        if finished:
            yield from self._fire(start, end, home, "late", ctx)
        else:
            self._note_change(home, ctx)

    def _touched(self, time: int) -> list[tuple[int, Any]]:
        """The sessions that a record at `time` belongs to, earliest first: more than one, if
        it lies between two."""
        return sorted(
            (start, session)
            for start, session in self.sessions.items()
            if start <= time + self._gap and session.end >= time
        )

    def _united(self, sessions: list[tuple[int, Any]]) -> int:
        """Remove sessions that become one; where its contents are."""
        homes = [session.home for _, session in sessions]
        for start, _ in sessions:
            del self.sessions[start]
        return self._contents.merge(homes)

    def _on_watermark(self, time: int, ctx: Context) -> Iterator[Any]:
        watermark = ctx.time.of(EVENT)
        for start, (end, home, due) in sorted(self.sessions.items()):
            if due != time:
                continue
            last = wanted = end - 1
            if last <= watermark:
                # After its end a session's timer stands later than that, to remove it.
                if time <= last:
                    yield from self._fire(start, end, home, "on_time", ctx)
                wanted = last + self._lateness
            if wanted <= watermark:
                del self.sessions[start]
                self._contents.remove(home)
            else:
                self.sessions[start] = end, home, wanted
                ctx.timers.register(moment(wanted), EVENT)

    def _open_windows(self, watermark: int) -> list[tuple[int, int, int]]:
        return [
            (start, session.end, session.home)
            for start, session in sorted(self.sessions.items())
            if session.end - 1 > watermark
        ]
