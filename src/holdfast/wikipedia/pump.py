"""From an origin to a target, at a pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from holdfast.wikipedia.edit import Edit
from holdfast.wikipedia.targets import Target


@dataclass(frozen=True, kw_only=True)
class Pumped:
    sent: int
    seconds: float


def pump(
    edits: Iterable[Edit],
    target: Target,
    *,
    stop: threading.Event,
    rate: float | None = None,
    limit: int | None = None,
    told: Callable[[int], None] = lambda sent: None,
) -> Pumped:
    """Until `limit` are sent, there are no more, or `stop` is set."""
    began, sent = time.monotonic(), 0
    for edit in islice(edits, limit):
        if stop.is_set():
            break
        if rate is not None:
            ahead = began + sent / rate - time.monotonic()
            if ahead > 0 and stop.wait(ahead):
                break
        target.send(edit)
        sent += 1
        told(sent)
    return Pumped(sent=sent, seconds=round(time.monotonic() - began, 3))
