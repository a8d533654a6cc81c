"""How savepoints and timelines came from one another, as a tree per job.

A timeline holds the savepoints that were taken in it. A start from a savepoint hangs its
timeline below that savepoint; a start from `checkpoint:N`, or from a savepoint that is gone,
below the timeline that it left. Nothing is read here: manifests and jobs say it all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.timelines import SinkChoice, Timeline
from holdfast.savepoint.manifest import Manifest

DEEPEST = 12
"""Timelines below one another. A chain that is longer goes on at the left margin: a job that
is rescaled every day would soon be wider than any screen."""


@dataclass(frozen=True, kw_only=True)
class SavepointNode:
    id: str
    label: str
    epoch: int
    keys: int
    bytes: int
    created: datetime
    parent: str | None = None
    """The savepoint that the job had been started from, if it was."""
    timelines: tuple[TimelineNode, ...] = ()
    """Those that were started from it, oldest first."""


@dataclass(frozen=True, kw_only=True)
class TimelineNode:
    name: str
    job_id: str
    parent: str | None = None
    epoch: int | None = None
    """The last epoch that it shares with its parent."""
    origin: str = ""
    """What it was started from: `checkpoint:12`, or the id of a savepoint."""
    origin_job: str | None = None
    """Whose savepoint that is, if it is another job's: of a fork, or of its parent."""
    origin_gone: bool = False
    """Whether that savepoint is no longer there, or never was: it may be on another machine."""
    sinks: SinkChoice = "keep"
    began: str = ""
    current: bool = False
    """Whether the job is in it now."""
    savepoints: tuple[SavepointNode, ...] = ()
    """Taken in it, by epoch."""
    timelines: tuple[TimelineNode, ...] = ()
    """Started from its checkpoint, or from savepoints of it that are gone, oldest first."""


@dataclass(frozen=True, kw_only=True)
class JobTree:
    job: str
    timeline: str | None
    """Where the job is now; None: only its savepoints are known."""
    timelines: tuple[TimelineNode, ...]


@dataclass(frozen=True)
class _Key:
    """One timeline. The same name may stand for others: after a savepoint was carried to
    another machine, both places count on; and a job may be begun anew."""

    timeline: Timeline
    job_id: str
    """Only of a timeline that came from nowhere; others are told apart by what began them."""


def job_trees(
    manifests: Iterable[Manifest], jobs: Iterable[JobIdentity] = ()
) -> tuple[JobTree, ...]:
    """A tree per job that has a savepoint, or is one of `jobs`; by name."""
    taken: dict[str, list[Manifest]] = defaultdict(list)
    owners: dict[str, str] = {}
    for manifest in manifests:
        taken[manifest.identity.name].append(manifest)
        owners[manifest.id] = manifest.identity.name
    known = {identity.name: identity for identity in jobs}
    return tuple(
        _Lineage(taken.get(name, []), known.get(name), owners).tree(name)
        for name in sorted(taken.keys() | known.keys())
    )


class _Lineage:
    """Of one job."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        job: JobIdentity | None,
        owners: Mapping[str, str],
    ) -> None:
        self._owners = owners
        """The job of every savepoint, by its id."""
        by_age = sorted(manifests, key=lambda each: (each.created, each.id))
        self._manifests = {each.id: each for each in by_age}
        self._now = None if job is None else _own_timeline(job)
        self._above: dict[_Key, _Key | str | None] = {}
        """What a timeline hangs below: a timeline, a savepoint by its id, or nothing."""
        self._job_ids: dict[_Key, str] = {}
        # The oldest first: it was there when the timeline was begun.
        identities = [each.identity for each in by_age]
        for identity in [*identities, job] if job else identities:
            self._add(identity)
        self._cut_circles()

    def _add(self, identity: JobIdentity) -> None:
        own = _own_timeline(identity)
        keys = {each.name: _key(each, identity) for each in identity.timelines}
        for key in (*keys.values(), own):
            if key in self._above:
                continue
            self._job_ids[key] = identity.job_id
            timeline = key.timeline
            if timeline.origin in self._manifests:
                self._above[key] = timeline.origin
            else:
                self._above[key] = keys.get(timeline.parent or "")

    def _cut_circles(self) -> None:
        """What holdfast wrote has none; a manifest that somebody else wrote may."""
        done: set[_Key] = set()
        for key in self._above:
            path: set[_Key] = set()
            at: _Key | None = key
            while at is not None and at not in done and at not in path:
                path.add(at)
                at = self._timeline_above(at)
            if at is not None and at in path:
                self._above[at] = None
            done |= path

    def _timeline_above(self, key: _Key) -> _Key | None:
        above = self._above[key]
        if isinstance(above, str):
            return _own_timeline(self._manifests[above].identity)
        return above

    def tree(self, job: str) -> JobTree:
        depths = self._depths()
        # The deepest first, so that what hangs below is ready when it is needed.
        below: dict[_Key | str | None, list[TimelineNode]] = defaultdict(list)
        saved: dict[_Key, list[Manifest]] = defaultdict(list)
        for manifest in self._manifests.values():
            saved[_own_timeline(manifest.identity)].append(manifest)
        for key in sorted(self._above, key=lambda key: depths[key], reverse=True):
            folded = depths[key] > 0 and depths[key] % DEEPEST == 0
            below[None if folded else self._above[key]].append(
                self._node(key, saved[key], below)
            )
        return JobTree(
            job=job,
            timeline=self._now.timeline.name if self._now else None,
            timelines=_by_age(below[None]),
        )

    def _node(
        self,
        key: _Key,
        saved: Sequence[Manifest],
        below: Mapping[_Key | str | None, Sequence[TimelineNode]],
    ) -> TimelineNode:
        timeline = key.timeline
        savepoints = [
            replace(_savepoint(each), timelines=_by_age(below.get(each.id, ())))
            for each in sorted(saved, key=lambda each: (each.epoch, each.created, each.id))
        ]
        own = timeline.origin in self._manifests
        is_savepoint = bool(timeline.origin) and not timeline.origin.startswith("checkpoint:")
        return TimelineNode(
            name=timeline.name,
            job_id=self._job_ids[key],
            parent=timeline.parent,
            epoch=timeline.epoch,
            origin=timeline.origin,
            origin_job=None if own else self._owners.get(timeline.origin),
            origin_gone=is_savepoint and timeline.origin not in self._owners,
            sinks=timeline.sinks,
            began=timeline.began,
            current=key == self._now,
            savepoints=tuple(savepoints),
            timelines=_by_age(below.get(key, ())),
        )

    def _depths(self) -> dict[_Key, int]:
        depths: dict[_Key, int] = {}
        for key in self._above:
            chain = []
            at: _Key | None = key
            while at is not None and at not in depths:
                chain.append(at)
                at = self._timeline_above(at)
            depth = -1 if at is None else depths[at]
            for each in reversed(chain):
                depth += 1
                depths[each] = depth
        return depths


def _key(timeline: Timeline, identity: JobIdentity) -> _Key:
    return _Key(timeline, identity.job_id if timeline.parent is None else "")


def _own_timeline(identity: JobIdentity) -> _Key:
    """The one that the job was in. Attempts of a job without checkpoints have their own,
    which is not in the list."""
    for timeline in identity.timelines:
        if timeline.name == identity.timeline:
            return _key(timeline, identity)
    return _key(Timeline(name=identity.timeline), identity)


def _savepoint(manifest: Manifest) -> SavepointNode:
    return SavepointNode(
        id=manifest.id,
        label=manifest.label,
        epoch=manifest.epoch,
        keys=sum(manifest.keys.values()),
        bytes=manifest.bytes,
        created=manifest.created,
        parent=manifest.parent,
    )


def _by_age(nodes: Iterable[TimelineNode]) -> tuple[TimelineNode, ...]:
    return tuple(
        sorted(nodes, key=lambda node: (node.began, len(node.name), node.name, node.job_id))
    )
