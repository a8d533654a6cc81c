"""Pending timers of a key group on disk: a batch pays for timers that fire, not for the rest.

Times are cut into slots: seconds for the next minute, minutes for the next hour, hours for the
next day, and so on. A slot's timers lie in a few chunks, one entry each; one small head entry
says which slots there are, and the earliest timer of each. So a batch reads the head, and the
slots in which something is due. If much is left of such a slot, it is put into finer ones: a
timer is moved at most once per width on its way. A few timers go back where they were.

A timer that the user deletes stays here. The key's own list of timers is ordinary state, and
whoever fires a timer looks there whether it still stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.codec import dump, key_wire, load
from holdfast.state.entries import TIMER_HEAD, EntryStore, Writes, timer_chunk_key
from holdfast.state.key_groups import canonical_bytes

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
WIDTHS = (_SECOND, 60 * _SECOND, 3_600 * _SECOND, _DAY, 32 * _DAY, 1024 * _DAY)
"""Of slots, in microseconds. The last two keep the head small when timers lie years ahead."""
CHUNK_TIMERS = 256

Timer = tuple[int, Any]
"""Time in microseconds, and key."""
SlotId = tuple[int, int]
"""Place in WIDTHS, and number of the slot: it begins at number x width."""
_Waiting = tuple[int, Any, SlotId | None]
"""Time, key, and the slot into which the timer is to go, if that is decided."""


@dataclass
class _Slot:
    earliest: int
    count: int = 0
    """All its chunks but the last are full, so this says how many there are."""


@dataclass
class _Kind:
    """The timers of one kind (event time, processing time, …)."""

    position: int | None = None
    """Up to here all timers have been handed out."""
    slots: dict[SlotId, _Slot] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)
    """Timers that are in no slot: registered in this visit, or left over of a slot."""


class TimerWheel:
    """The timers of one key group, inside one visit of a batch."""

    def __init__(
        self,
        key_kinds: Sequence[pa.DataType],
        older_names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`older_names` says, by kind, under which names its timers may have been stored."""
        self._wire, self._older = key_wire(tuple(key_kinds)), dict(older_names or {})
        self._kinds: dict[str, _Kind] = {}
        self._emptied: list[bytes] = []
        self._store: EntryStore | None = None

    def begin(self, store: EntryStore) -> None:
        """Begin a visit: read the head. Forgets an unfinished visit."""
        (head,) = store.get_many([TIMER_HEAD])
        self._kinds = {} if head is None else _load_head(head)
        self._emptied, self._store = [], store

    def register(self, kind: str, time: int, key: Any) -> None:
        """Have `key` come back from :meth:`due` once `time` (in microseconds) is reached."""
        self._kinds.setdefault(kind, _Kind()).waiting.append((time, key, None))

    def next(self, kind: str) -> int | None:
        """The time of the earliest timer."""
        times: list[int] = []
        for _, timers in self._named(kind):
            times += [slot.earliest for slot in timers.slots.values()]
            times += [time for time, _, _ in timers.waiting]
        return min(times, default=None)

    def due(self, kind: str, until: int) -> list[Timer]:
        """Take out all timers up to and including `until`, in the order of time and key.

        One that was registered twice for the same time comes once.
        """
        timers = self._kinds.setdefault(kind, _Kind())
        timers.position = until if timers.position is None else max(timers.position, until)
        pending = timers.waiting
        for name, stored in self._named(kind):
            pending += self._take_out(name, stored, until)
        timers.waiting = [timer for timer in pending if timer[0] > until]
        found = {(time, key) for time, key, _ in pending if time <= until}
        return sorted(found, key=lambda timer: (timer[0], canonical_bytes(timer[1])))

    def flush(self, store: EntryStore) -> bool:
        """Write what changed and end the visit; was there anything to write?"""
        writes = Writes()
        writes.remove(*self._emptied)
        for kind, timers in self._kinds.items():
            self._place(kind, timers, store, writes)
        # That only time has passed is not worth writing: the next visit says it again.
        if writes:
            head = _dump_head(self._kinds)
            if head is None:
                writes.remove(TIMER_HEAD)
            else:
                writes.put(TIMER_HEAD, head)
        self._kinds, self._emptied, self._store = {}, [], None
        return writes.apply(store)

    def _named(self, kind: str) -> list[tuple[str, _Kind]]:
        """The timers of a kind, also those that were registered under an older name."""
        names = (kind, *self._older.get(kind, ()))
        return [(name, self._kinds[name]) for name in names if name in self._kinds]

    def _take_out(self, kind: str, timers: _Kind, until: int) -> list[_Waiting]:
        """Empty the slots in which something is due."""
        counts = {at: slot.count for at, slot in timers.slots.items() if slot.earliest <= until}
        if not counts:
            return []
        assert self._store is not None, "begin() comes first"
        keys = [timer_chunk_key(kind, *at, n) for at in counts for n in _chunks(counts[at])]
        self._emptied += keys
        chunks = iter(self._store.get_many(keys))
        taken: list[_Waiting] = []
        for at, count in counts.items():
            del timers.slots[at]
            flat = [item for _ in _chunks(count) for item in _load_chunk(next(chunks))]
            left = sum(time > until for time in flat[::2])
            # A few timers are not worth being spread over many slots.
            back = at if left <= CHUNK_TIMERS else None
            found = map(self._wire.unpack, flat[1::2]) if self._wire.unpack else flat[1::2]
            taken += ((time, key, back) for time, key in zip(flat[::2], found, strict=True))
        return taken

    def _place(self, kind: str, timers: _Kind, store: EntryStore, writes: Writes) -> None:
        """Put waiting timers into slots, behind those that are there already."""
        by_slot: dict[SlotId, list[Timer]] = {}
        for time, key, back in timers.waiting:
            at = _slot_of(time, timers.position) if back is None else back
            by_slot.setdefault(at, []).append((time, key))
        begun = self._begun_chunks(kind, timers, by_slot, store)
        pack = self._wire.pack
        for at, added in by_slot.items():
            slot = timers.slots.setdefault(at, _Slot(added[0][0]))
            flat = begun.get(at, [])
            for time, key in added:
                flat += (time, key if pack is None else pack(key))
            first = slot.count // CHUNK_TIMERS
            for number, begin in enumerate(range(0, len(flat), 2 * CHUNK_TIMERS), first):
                chunk = dump(flat[begin : begin + 2 * CHUNK_TIMERS])
                writes.put(timer_chunk_key(kind, *at, number), chunk)
            slot.count += len(added)
            slot.earliest = min([slot.earliest, *(time for time, _ in added)])

    @staticmethod
    def _begun_chunks(
        kind: str, timers: _Kind, wanted: Iterable[SlotId], store: EntryStore
    ) -> dict[SlotId, list[Any]]:
        """The last chunks of slots, where they are not full: they will be filled up. Otherwise
        a slot would get a chunk per batch, and a day's slot tens of thousands of them."""
        begun = {
            at: timer_chunk_key(kind, *at, timers.slots[at].count // CHUNK_TIMERS)
            for at in wanted
            if at in timers.slots and timers.slots[at].count % CHUNK_TIMERS
        }
        if not begun:
            return {}
        found = store.get_many(list(begun.values()))
        return {at: _load_chunk(chunk) for at, chunk in zip(begun, found, strict=True)}


def _slot_of(time: int, position: int | None) -> SlotId:
    """Seconds for what comes within a minute, minutes within an hour, and so on. What should
    have come already goes with what comes next, so that late timers do not make slots."""
    if position is None:
        width = WIDTHS.index(_DAY)
    else:
        time = max(time, position)
        wider = enumerate(WIDTHS[1:])
        width = next((at for at, end in wider if time - position < end), len(WIDTHS) - 1)
    return width, time // WIDTHS[width]


def _chunks(count: int) -> range:
    return range(-(-count // CHUNK_TIMERS))


def _load_chunk(chunk: bytes | None) -> list[Any]:
    """Time, key, time, key, …"""
    if chunk is None:
        raise CorruptionError(
            "STATE_PAGE_MISSING",
            "timers that should be in the state store are not there.",
            fix="restore the checkpoint directory from a backup; this one is damaged.",
        )
    flat: list[Any] = load(chunk)
    return flat


def _dump_head(kinds: dict[str, _Kind]) -> bytes | None:
    """None if there is no timer."""
    plain = {
        kind: [
            timers.position,
            [[*at, slot.earliest, slot.count] for at, slot in timers.slots.items()],
        ]
        for kind, timers in kinds.items()
        if timers.slots
    }
    return dump(plain) if plain else None


def _load_head(stored: bytes) -> dict[str, _Kind]:
    return {
        kind: _Kind(
            position,
            {
                (width, number): _Slot(earliest, count)
                for width, number, earliest, count in slots
            },
        )
        for kind, (position, slots) in load(stored).items()
    }
