"""Sources that have fallen silent: when they no longer hold the watermark back. Pure.

Spark's watermark of a job is the smallest of those of its sources. A source without new rows
stands still, and everything waits for it. One that has been silent for its `idle_after` is left
out: it counts as if it had come as far as the furthest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Watched:
    """One `flow.watermark`: the sources that its rows come from, and its patience with them."""

    sources: tuple[str, ...]
    idle_after: timedelta | None
    """None: its sources are waited for, for however long."""


def idle_watermarks(
    watched: Sequence[Watched], last_rows: Mapping[str, datetime], began: datetime
) -> tuple[int, ...]:
    """Which watermarks are idle, by number.

    `last_rows` says when the last epoch with rows of a source ended, `began` when the epoch
    that has just ended began. That it had none is known of the time before it began only: a
    source is not idle because an epoch takes long.
    """
    return tuple(
        number
        for number, each in enumerate(watched)
        if each.idle_after is not None
        and all(began - last_rows[uid] >= each.idle_after for uid in each.sources)
    )


def watermark_doings(
    moved: Mapping[str, datetime | None], waited_for: Mapping[str, bool]
) -> dict[str, str]:
    """What each source that has one does to the watermark of its job, in a word or two.

    The one that last had rows the longest ago `holds it`, of those that are waited for, if
    others have had some since: they wait for it from then on. `moved` says when each source
    last had rows, as far as that is known.
    """
    known = {uid: at for uid, waits in waited_for.items() if waits and (at := moved.get(uid))}
    oldest = min(known, key=lambda uid: known[uid], default=None)
    others = [moved.get(uid) for uid in waited_for]
    held = oldest is not None and any(at and at > known[oldest] for at in others)
    return {
        uid: "idle" if not waits else "holds it" if held and uid == oldest else "moves it"
        for uid, waits in waited_for.items()
    }
