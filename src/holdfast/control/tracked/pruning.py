"""Old operations are forgotten, with their logs: a server that is asked for one a minute would
else keep half a million a year."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from holdfast.clock import Clock
from holdfast.control.tracked.log import OperationLog

YOUNGEST = timedelta(days=7)
"""Nothing younger is forgotten, however many there are."""
_AT_ONCE = 500


def prune(log: OperationLog, logs: Path, *, kept: int, clock: Clock) -> int:
    """Keep the newest `kept` that are over, and all that are not; returns how many are gone."""
    gone = 0
    while old := log.ended_beyond(kept, before=clock.now() - YOUNGEST, limit=_AT_ONCE):
        # The log first: an operation whose log is gone is found again, a log alone is not.
        for operation_id in old:
            (logs / f"{operation_id}.log").unlink(missing_ok=True)
        log.forget(old)
        gone += len(old)
    return gone
