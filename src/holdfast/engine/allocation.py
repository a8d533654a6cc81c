"""Memory that a Python worker has freed stays with it for a while.

A worker needs in the next epoch what it needed in this one. Both of its allocators, Arrow's
and C's, give large pieces back to the system at once, and get them again as new pages, each of
which the system has to find, to clear and to map. That was a sixth of the workers' time from
Kafka to Kafka.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_ARROW_VARIABLE = "MIMALLOC_PURGE_DELAY"
_ARROW_KEEPS_MILLISECONDS = 10_000
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Of malloc.h."""
_C_KEEPS_BYTES = 512 * 1024**2
"""Unused memory at the end of the heap beyond which the C library returns it."""
_C_MAPS_BYTES = (256 * 1024**2, 32 * 1024**2)
"""Pieces of this size are mapped one by one, and returned when they are freed. The second is
the most that older C libraries take."""
_C_GROWS_BYTES = 16 * 1024**2


def keep_freed_memory() -> None:
    """For this process and those that it forks; to be called before Arrow is imported."""
    os.environ.setdefault(_ARROW_VARIABLE, str(_ARROW_KEEPS_MILLISECONDS))
    if any(name.startswith("MALLOC_") for name in os.environ):
        return  # somebody has decided otherwise
    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        if any(mallopt(_M_MMAP_THRESHOLD, size) for size in _C_MAPS_BYTES):
            mallopt(_M_TRIM_THRESHOLD, _C_KEEPS_BYTES)
            mallopt(_M_TOP_PAD, _C_GROWS_BYTES)
