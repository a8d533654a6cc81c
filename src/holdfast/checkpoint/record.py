"""The record of one epoch: how long, how much, how big, and how it ended.

Pure values. The engine fills them, the registry stores them, the CLI shows them; the
JSON form is what travels between the three, so its keys are the field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self


class EpochStatus(StrEnum):
    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    INTERRUPTED = "INTERRUPTED"


@dataclass(frozen=True, kw_only=True)
class StateSize:
    """How much one step keeps; `rows` counts live user keys."""

    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SinkResult:
    """What one sink wrote; `skipped` says that it had this epoch already."""

    rows: int
    bytes: int
    files: int = 0
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class StartReport:
    """What is known once an attempt has started. Plain values: it travels between processes."""

    job: str
    attempt: int
    resumed: bool
    guarantee: str
    weak_links: tuple[str, ...]
    parallelism: int
    key_groups: int
    backend: str
    interval: str
    sources: Mapping[str, str]
    """By uid: what it is."""
    sinks: Mapping[str, str]
    never_forget: tuple[str, ...]
    """Steps that keep every key that they have ever seen."""
    directory: str
    timings: Mapping[str, float]
    """Seconds from the start of the attempt to the end of each step of the start."""
    origin: str = ""
    """The savepoint or older epoch that this start takes the job to; empty: its last epoch."""


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that happened to a job besides its epochs."""

    at: datetime
    kind: str
    """A stable word, such as `executor_lost`."""
    text: str
    """One sentence for people."""
    data: Mapping[str, Any] = field(default_factory=dict)
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch as one attempt saw it.

    `phases` holds seconds in the order the phases ran; `state` and `sinks` are by uid,
    `offsets` by source uid. An epoch that a crash cut short has a record per attempt.
    """

    epoch: int
    attempt: int
    status: EpochStatus
    started: datetime
    ended: datetime | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    input_rows: int = 0
    skipped_rows: int = 0
    """Input records that did not parse and were left out, as their source was told to."""
    output_rows: int = 0
    bytes_written: int = 0
    checkpoint_bytes: int = 0
    checkpoint_kind: str = "incremental"
    state: Mapping[str, StateSize] = field(default_factory=dict)
    sinks: Mapping[str, SinkResult] = field(default_factory=dict)
    watermark: datetime | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    """Late records by step: what the watermark had passed when it arrived."""
    waited_for: Mapping[str, bool] = field(default_factory=dict)
    """Sources with a watermark: whether the job's watermark waits for each, or it is idle."""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    latest: Mapping[str, Any] = field(default_factory=dict)
    """Where the source itself ended, by its uid, in the form of `offsets`; if it tells."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Records that a source has and the job has not read, by its uid; if it tells."""

    @property
    def seconds(self) -> float | None:
        """Wall time of the epoch, once it has ended."""
        return None if self.ended is None else (self.ended - self.started).total_seconds()

    @property
    def state_rows(self) -> int:
        return sum(size.rows for size in self.state.values())

    @property
    def late_rows(self) -> int:
        return sum(self.late.values())

    @property
    def state_bytes(self) -> int:
        return sum(size.bytes for size in self.state.values())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe copy: times become RFC 3339 text in UTC."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {name: time_text(plain[name]) for name in ("started", "ended", "watermark")}
        plain["status"] = self.status.value
        plain["phases"] = dict(self.phases)
        plain["state"] = {uid: vars(size).copy() for uid, size in self.state.items()}
        plain["sinks"] = {uid: vars(result).copy() for uid, result in self.sinks.items()}
        for name in ("late", "waited_for", "offsets", "latest", "lag"):
            plain[name] = dict(plain[name])
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Keys that this version does not know are left out: an older holdfast must still be
        able to show the history that a newer one wrote.
        """
        values = {name: value for name, value in plain.items() if name in _EPOCH_FIELDS}
        values["status"] = EpochStatus(values["status"])
        for name in ("started", "ended", "watermark"):
            values[name] = parse_time(values.get(name))
        values["state"] = {
            uid: StateSize(rows=size["rows"], bytes=size["bytes"])
            for uid, size in values.get("state", {}).items()
        }
        values["sinks"] = {
            uid: SinkResult(
                rows=result["rows"],
                bytes=result["bytes"],
                files=result.get("files", 0),
                skipped=result.get("skipped", False),
            )
            for uid, result in values.get("sinks", {}).items()
        }
        return cls(**values)


_EPOCH_FIELDS = frozenset(field.name for field in fields(EpochRecord))
"""Asked for once: a list of jobs is made of thousands of records."""


def time_text(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC.

    A time without a zone is refused rather than guessed: a guess would be wrong by hours
    on some machines and right on the developer's.
    """
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use datetime.now(UTC)")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
