"""From where a job is to go on: a decision, which travels to the driver that carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.sizes import SizesLog
from holdfast.checkpoint.timelines import Timeline


@dataclass(frozen=True, kw_only=True)
class SinkBeyond:
    """What a sink holds that the job will not have written."""

    uid: str
    sink: str
    epochs: int
    rows: int | None
    """None: the sink does not count them."""

    @property
    def words(self) -> str:
        epochs = f"{self.epochs:,} epoch{'s' * (self.epochs != 1)}"
        return epochs if self.rows is None else f"{epochs} with {self.rows:,} rows"


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """What a restore will do.

    The job goes on in a checkpoint of its own, made of one batch of `checkpoint`, and under a
    new timeline. The switch is that `identity` becomes the job's; it can be seen there whether
    the plan was carried out, so it may be repeated.
    """

    origin: str
    """`checkpoint:12`, or the id of a savepoint."""
    checkpoint: Path
    batch: int
    partitions: int
    """Of the state as it is stored; another number in `identity` means that it is rescaled."""
    identity: JobIdentity
    """The job as it will be; its steps, sources and backend still as they are stored."""
    sinks: tuple[SinkBeyond, ...] = ()
    canonical: Path | None = None
    """Where the state of process steps lies as plain columns, if it does."""
    spark: str = ""
    """The version of Spark that the savepoint was taken under."""
    allow_dropped: bool = False
    """Whether state that the code has no place for may be left behind."""
    reset_sources: tuple[str, ...] = ()
    """Sources that do not go on where they were, but begin where the code says."""
    claim: bool = False
    """Whether the savepoint is removed once the job has gone on from it."""
    of_job: str = ""
    """Whose savepoint it is, if not the job's own: a fork is made, or promoted."""

    @property
    def sizes(self) -> SizesLog:
        """Beside the checkpoint, in a job's directory as in a savepoint."""
        return SizesLog(self.checkpoint.with_name("sizes"))

    @property
    def timeline(self) -> Timeline:
        return self.identity.timelines[-1]

    @property
    def rescales(self) -> bool:
        return self.identity.parallelism != self.partitions

    def is_done(self, current: JobIdentity | None) -> bool:
        return current is not None and self.timeline in current.timelines

    @property
    def sentence(self) -> str:
        rescaled = (
            f" with {self.identity.parallelism} partitions instead of {self.partitions}"
            if self.rescales
            else ""
        )
        if self.reset_sources:
            rescaled += f", and begins anew in source {', '.join(self.reset_sources)}"
        if self.of_job and self.timeline.parent is None:
            return (
                f"from {self.point}: a fork that goes on after epoch {self.batch}{rescaled}; "
                f"its files go to directories with {self.identity.output_suffix!r} added."
            )
        if self.of_job:
            return (
                f"from {self.point}: goes on after epoch {self.batch} of it, as timeline "
                f"{self.timeline.name}, which left {self.timeline.parent} after epoch "
                f"{self.timeline.epoch}{rescaled}; output beyond it: {self.timeline.sinks}."
            )
        return (
            f"from {self.origin}: goes on after epoch {self.batch} of timeline "
            f"{self.timeline.parent}, as timeline {self.timeline.name}{rescaled}; output "
            f"beyond it: {self.timeline.sinks}."
        )

    @property
    def point(self) -> str:
        """What the job goes on from, as the history says it."""
        kind = "" if self.origin.startswith("checkpoint:") else "savepoint "
        return f"{kind}{self.origin}" + (f" of job {self.of_job}" if self.of_job else "")

    @property
    def beyond(self) -> tuple[str, ...]:
        """A line per sink: what it holds beyond the point, and what becomes of that."""
        return tuple(
            f"  sink {each.uid}  {each.sink}: {each.words} beyond it; {self.timeline.sinks}"
            for each in self.sinks
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "of_job": self.of_job,
            "checkpoint": str(self.checkpoint),
            "batch": self.batch,
            "partitions": self.partitions,
            "identity": self.identity.to_dict(),
            "sinks": [asdict(each) for each in self.sinks],
            "canonical": None if self.canonical is None else str(self.canonical),
            "spark": self.spark,
            "allow_dropped": self.allow_dropped,
            "reset_sources": list(self.reset_sources),
            "claim": self.claim,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            **dict(stored)
            | {
                "checkpoint": Path(stored["checkpoint"]),
                "identity": JobIdentity.from_dict(stored["identity"]),
                "sinks": tuple(SinkBeyond(**each) for each in stored["sinks"]),
                "canonical": Path(stored["canonical"]) if stored["canonical"] else None,
                "reset_sources": tuple(stored.get("reset_sources", ())),
            }
        )

    def summary(self) -> dict[str, Any]:
        """For people and scripts."""
        return {
            "job": self.identity.name,
            "origin": self.origin,
            **({"of_job": self.of_job} if self.of_job else {}),
            "epoch": self.batch,
            "timeline": self.timeline.name,
            "parent": self.timeline.parent,
            "partitions": self.partitions,
            "parallelism": self.identity.parallelism,
            "reset_sources": list(self.reset_sources),
            "sinks": [asdict(each) | {"choice": self.timeline.sinks} for each in self.sinks],
        }
