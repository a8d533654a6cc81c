"""What a command does with the signals that would end it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does: processes that were started must not outlive us."""

    def handle(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
