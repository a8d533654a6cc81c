"""Work on many files by all cores: Python lets others run while it reads, hashes and sums."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_MOST = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results, in the order of the items."""
    with ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as pool:
        yield from pool.map(work, items)
