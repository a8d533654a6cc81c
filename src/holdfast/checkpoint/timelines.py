"""Timelines: what became of a job each time that it was taken back.

A job begins in timeline `t0`. Starting it from an older point begins a new one, which shares
its parent's epochs up to that point. Sinks commit under the timeline, so an epoch that comes
again with other rows is not taken for the one that they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FIRST = "t0"
SinkChoice = Literal["rewind", "keep", "new"]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    name: str = FIRST
    parent: str | None = None
    epoch: int | None = None
    """The last epoch that it shares with its parent."""
    origin: str = ""
    """What it was started from, for people: `checkpoint:12`, or a savepoint."""
    sinks: SinkChoice = "keep"
    """What happened to the output beyond that epoch."""
    began: str = ""


def next_name(timelines: Sequence[Timeline]) -> str:
    return f"t{max((int(each.name[1:]) for each in timelines), default=-1) + 1}"


def lineage(timelines: Sequence[Timeline], name: str) -> dict[str, int | None]:
    """The epochs that led to a timeline: by timeline the last one that counts; None: all."""
    known = {each.name: each for each in timelines}
    found: dict[str, int | None] = {name: None}
    at = known.get(name)
    last: int | None = None
    while at is not None and at.parent is not None and at.epoch is not None:
        # Going back past a point where a parent had itself branched off shares less of it.
        last = at.epoch if last is None else min(last, at.epoch)
        found[at.parent] = last
        at = known.get(at.parent)
    return found


@dataclass(frozen=True, kw_only=True)
class Removed:
    """Epochs whose output a rewind has removed."""

    timeline: str
    after: int | None
    """The last one that was left; None: all of that timeline is gone."""
    by: Timeline


def removed_on_the_way(timelines: Sequence[Timeline], name: str) -> Removed | None:
    """Output that led to a timeline, but that was removed when the job was taken back earlier.

    Timelines are in the order in which they began; a rewind leaves later ones alone.
    """
    order = [each.name for each in timelines]
    wanted = {
        timeline: last
        for timeline, last in lineage(timelines, name).items()
        if last is not None
    }
    for rewind in timelines:
        if rewind.sinks != "rewind" or rewind.parent is None or rewind.name == name:
            continue
        left = lineage(timelines, rewind.name)
        for timeline, last in wanted.items():
            if order.index(timeline) >= order.index(rewind.name):
                continue
            if timeline not in left:
                return Removed(timeline=timeline, after=None, by=rewind)
            kept = left[timeline]
            if kept is not None and last > kept:
                return Removed(timeline=timeline, after=kept, by=rewind)
    return None
