"""A key group's entries in Spark's state store: bytes to bytes, always many at a time.

What lies under which key, all numbers big-endian:

    "v"  name  key                  a value, or the head of a map or list of many pages
    "p"  name  key  page            one page of it (32 bits)
    "H"                             the head of the key group
    "b"  number                     a block of the heap backend's log (64 bits)
    "B"                             the broadcast state
    "T"                             which slots of the timer wheel there are
    "t"  kind  width  slot  chunk   timers of one slot (8, 64 and 32 bits)

A name or kind is its length (16 bits) and its UTF-8 bytes; a user's key is its canonical bytes,
which say themselves where they end. So no two of these run together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Protocol


class EntryStore(Protocol):
    """One key group's entries, inside one batch. Spark commits them with the batch.

    A call is a round trip to the JVM, worth five to ten entries, so callers collect theirs.
    """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, in their order; None where there is none."""

    def put_many(self, items: Sequence[tuple[bytes, bytes]]) -> None: ...

    def remove_many(self, keys: Sequence[bytes]) -> None: ...


class Writes:
    """What a flush is about to do.

    It is collected first and carried out at the end, so that a value that cannot be encoded
    stops the flush before anything was written.
    """

    def __init__(self) -> None:
        self._puts: dict[bytes, bytes] = {}
        self._removes: dict[bytes, None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self._puts[key] = value

    def remove(self, *keys: bytes) -> None:
        self._removes.update(dict.fromkeys(keys))

    def __bool__(self) -> bool:
        return bool(self._puts or self._removes)

    def apply(self, store: EntryStore) -> bool:
        """Carry it out; what is both removed and put stays put. Was there anything to do?"""
        removes = [key for key in self._removes if key not in self._puts]
        if removes:
            store.remove_many(removes)
        if self._puts:
            store.put_many(list(self._puts.items()))
        return bool(removes or self._puts)


HEAD = b"H"
BROADCAST = b"B"
TIMER_HEAD = b"T"


def block_key(sequence: int) -> bytes:
    return b"b" + struct.pack(">Q", sequence)


def value_prefix(name: str) -> bytes:
    """To be followed by a key's canonical bytes."""
    return b"v" + _named(name)


def page_prefix(name: str, key: bytes) -> bytes:
    return b"p" + _named(name) + key


def page_keys(prefix: bytes, numbers: Iterable[int]) -> list[bytes]:
    return [prefix + struct.pack(">I", number) for number in numbers]


def timer_chunk_key(kind: str, width: int, slot: int, chunk: int) -> bytes:
    """`width` is a place in the wheel's list of widths, `slot` a number of such widths."""
    return b"t" + _named(kind) + struct.pack(">BqI", width, slot, chunk)


def _named(name: str) -> bytes:
    text = name.encode()
    return struct.pack(">H", len(text)) + text
