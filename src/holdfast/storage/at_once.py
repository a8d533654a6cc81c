"""Work on many files at once: Python lets others run while it reads, hashes, and waits for the
disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

_THREADS = 4
_TOGETHER = 16
"""Most files are small, and handing one to a thread takes longer than reading it."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in any order."""
    count = -(-len(items) // _TOGETHER)
    # Neighbours go to different threads: large files lie beside one another.
    parts = [items[first::count] for first in range(count)]

    def done(part: Sequence[Item]) -> list[tuple[Item, Result]]:
        return [(item, work(item)) for item in part]

    with ThreadPoolExecutor(_THREADS) as pool:
        yield from chain.from_iterable(pool.map(done, parts))
