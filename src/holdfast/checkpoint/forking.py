"""Forks: a second job that goes on from the state of a first one, and may take its place.

    parent   t0 ── 3 ── 4 ── 5 ── 6 ── 7
                        └── fork  t0 ── 5 ── 6 ── 7 ── 8      writes to out.<fork>
                                                       └── promoted: the parent's t1, 9, …

A fork is a job of its own: another id, another directory, its own timelines. It remembers the
point of its parent that it came from. Promoted, it is as if the parent had been taken back to
that point and had gone on with the fork's code: the state is the fork's, and the output that
the fork has written since becomes the parent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoint.copies import link
from holdfast.checkpoint.timelines import Timeline, lineage
from holdfast.faults import fault_point
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile
from holdfast.storage.files import storage_errors


@dataclass(frozen=True, kw_only=True)
class ForkPoint:
    """Where a fork came from."""

    job: str
    job_id: str
    savepoint: str
    timeline: str
    """Of the parent."""
    epoch: int
    """The last one that both have in common."""

    @property
    def sentence(self) -> str:
        return (
            f"fork of job {self.job}, from savepoint {self.savepoint}, after epoch "
            f"{self.epoch} of its timeline {self.timeline}"
        )

    def is_on_the_way_to(self, timelines: Sequence[Timeline], now: str) -> bool:
        """Whether the parent, which is in timeline `now`, still has that point behind it."""
        kept = lineage(timelines, now)
        last = kept.get(self.timeline, -1)
        return last is None or last >= self.epoch


def base_suffix(job: str, fork: ForkPoint | None) -> str:
    """A fork must not write where its parent does."""
    return "" if fork is None else f".{job}"


def output_suffixes(timelines: Sequence[Timeline], base: str) -> dict[str, str]:
    """What each timeline of a job added to the directories of its file sinks. A start with
    `--sink new` begins another directory, which later timelines stay in."""
    found, suffix = {}, base
    for timeline in timelines:
        if timeline.parent is not None and timeline.sinks == "new":
            suffix = f"{base}.{timeline.name}"
        found[timeline.name] = suffix
    return found


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """Output of a fork that becomes its parent's."""

    job: str
    job_id: str
    after: int
    """The epoch of the fork's beginning."""
    kept: Mapping[str, int | None]
    """By timeline of the fork the last epoch that counts."""
    directories: Mapping[str, Mapping[str, str]]
    """By sink and timeline: where the fork wrote."""
    formats: Mapping[str, str]

    def logs(self, uid: str) -> dict[str, FileSinkLog]:
        """What the fork has written to a sink, by timeline."""
        return {
            timeline: FileSinkLog(
                Path(directory),
                job_id=self.job_id,
                job_name=self.job,
                sink_uid=uid,
                file_format=self.formats[uid],
                timeline=timeline,
            )
            for timeline, directory in self.directories.get(uid, {}).items()
        }


def adopt(
    uid: str, log: FileSinkLog, adoption: Adoption, kept: Mapping[str, int | None]
) -> None:
    """Commit the fork's epochs in the parent's sink, as links to the same files. `kept` leads
    to the parent's timeline: what is there already is left alone, so this may be repeated."""
    there = {record.epoch for record in log.within(kept, after=adoption.after)}
    for timeline, theirs in adoption.logs(uid).items():
        within = {timeline: adoption.kept[timeline]}
        for record in theirs.within(within, after=adoption.after):
            if record.epoch in there:
                continue
            staging = log.begin(record.epoch)
            staged = []
            for number, file in enumerate(record.files):
                name = f"{number:05d}"
                with storage_errors(theirs.path_of(file)):
                    link(theirs.path_of(file), staging / name)
                staged.append(StagedFile(name=name, rows=file.rows, bytes=file.bytes))
            log.commit(record.epoch, staging, staged)
            fault_point("sink.mid_adoption")
