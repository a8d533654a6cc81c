"""When a key group must be looked at although no record arrives.

Spark keeps one timer per key group for us. It is set to the time at which something in the
group is due, and is never moved or deleted: one that fires too early costs a look.
"""

from __future__ import annotations

from holdfast.state.times import EpochTime

SOON = 1
"""A time that is long past: Spark fires such a timer in every epoch. So is the next one, which
stands in for it while it fires."""


def wanted_wake(
    event: int | None, processing: int | None, mode: str, time: EpochTime
) -> int | None:
    """When to look at a group whose earliest due times (microseconds) are given.

    Spark's timers follow one clock per step. Where a step has both, they follow processing
    time, and a group that waits for the watermark is looked at in every epoch.
    """
    if mode == "ProcessingTime":
        due, reading = (SOON if event is not None else processing), time.now
    else:
        due, reading = event, time.watermark
    if due is None:
        return None
    if reading is not None and due <= reading:
        return SOON
    return -(-due // 1000)  # milliseconds, rounded up: never before it is due


def next_timer(registered: int | None, wanted: int | None, fired: int | None) -> int | None:
    """The timer that Spark should hold after this visit.

    `fired` is the one that led to the visit, if one did: Spark deletes it afterwards, so it
    cannot be registered again under the same time.
    """
    standing = None if registered == fired else registered
    if wanted is None or (standing is not None and standing <= max(wanted, SOON + 1)):
        return standing
    return wanted + 1 if wanted == fired else wanted
