"""Waiting for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.errors import RunFailedError

PATIENCE_SECONDS = 180.0
_POLL_SECONDS = 0.05


def wait(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RunFailedError(
                "DRILL_STALLED",
                f"waited {seconds:g} s for {what}.",
                fix="look into the logs below the drill's directory (--keep); a machine that "
                "is very busy looks like this, too.",
            )
        time.sleep(_POLL_SECONDS)
