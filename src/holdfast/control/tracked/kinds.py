"""Which operations there are, what each is told, and what to do about one that was cut short.

Pure: how they are carried out is in :mod:`holdfast.control.tracked.carry_out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.checkpoint.timelines import SinkChoice

LONGEST_WAIT = 180.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """Run a file, under supervision; a job that has run before goes on where it was."""

    app: str
    directory: str
    job_name: str | None = None
    name: str | None = None
    parallelism: int | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    available_now: bool = False
    max_epochs: int | None = None
    start_from: str | None = None
    sink: SinkChoice | None = None
    allow_dropped: bool = False


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Run a job again as it was last started."""

    take_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Stop:
    savepoint: bool = False
    label: str = ""
    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class End:
    """Of `suspend` and `cancel`."""

    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class TakeSavepoint:
    label: str = ""
    canonical: bool = False


@dataclass(frozen=True, kw_only=True)
class Rescale:
    parallelism: int
    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class RollBack:
    """Also a restore: the same point, perhaps with another parallelism."""

    origin: str
    sink: SinkChoice | None = None
    parallelism: int | None = None
    allow_dropped: bool = False
    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    app: str
    healthy_epochs: int = 3
    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class Fork:
    """The operation's job is the fork; `of` is a job or a savepoint."""

    of: str
    app: str
    directory: str
    job_name: str | None = None
    parallelism: int | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    available_now: bool = False
    allow_dropped: bool = False


@dataclass(frozen=True, kw_only=True)
class Promote:
    sink: SinkChoice | None = None
    timeout: float = LONGEST_WAIT


@dataclass(frozen=True, kw_only=True)
class Compare:
    """What a job and its fork have written since the fork. Changes nothing."""

    other: str
    sink: str | None = None
    limit: int = 10


@dataclass(frozen=True, kw_only=True)
class OfSavepoint:
    """Of `verify` and `export`: which savepoint."""

    savepoint: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What another operation would do. Changes nothing."""

    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    parameters: type
    exclusive: bool = True
    """Whether it keeps other operations from the job meanwhile."""
    starts: bool = False
    """Whether a job that did not run does afterwards, and so needs room on the machine."""
    restarts: bool = False
    """Whether a job that runs is stopped, and goes on."""
    fix: str = "give it again: it goes on where it was."
    """What to do if it was cut short, and is not tried again."""

    @property
    def needs_room(self) -> bool:
        """Whether nobody else may take the room of the job meanwhile."""
        return self.starts or self.restarts

    def read(self, parameters: Mapping[str, Any]) -> Any:
        """As stored; what another version has added is left out."""
        known = {field.name for field in fields(self.parameters)}
        return self.parameters(**{k: v for k, v in parameters.items() if k in known})


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="start", parameters=Start, starts=True),
        Kind(name="resume", parameters=Resume, starts=True),
        Kind(name="stop", parameters=Stop),
        Kind(name="suspend", parameters=End),
        Kind(name="cancel", parameters=End),
        Kind(name="savepoint", parameters=TakeSavepoint, fix="take it again."),
        Kind(name="rescale", parameters=Rescale, restarts=True),
        Kind(name="rollback", parameters=RollBack, restarts=True),
        Kind(name="upgrade", parameters=Upgrade, restarts=True),
        Kind(name="fork", parameters=Fork, starts=True),
        Kind(name="promote", parameters=Promote, restarts=True),
        Kind(name="compare", parameters=Compare, exclusive=False, fix="compare them again."),
        Kind(name="verify", parameters=OfSavepoint, exclusive=False, fix="verify it again."),
        Kind(name="export", parameters=OfSavepoint, exclusive=False, fix="export it again."),
        Kind(name="plan", parameters=Plan, exclusive=False, fix="ask for the plan again."),
    )
}
