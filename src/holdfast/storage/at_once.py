"""Work on many files by all cores: Python lets others run while it reads, hashes and sums."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_MOST = 4
_TOGETHER = 16
"""Most files are small, and handing one to a thread takes longer than reading it."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results, in the order of the items."""
    waiting = iter(items)
    parts = iter(lambda: list(islice(waiting, _TOGETHER)), [])
    with ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as pool:
        yield from chain.from_iterable(pool.map(lambda part: [*map(work, part)], parts))
