"""A job's directory and the facts that are fixed when the job first starts.

    <storage>/<job name>/
    ├── job.json        who the job is: id, parallelism, key groups, operators
    ├── lease.json      who runs the job, and the fence of its newest attempt
    ├── lock            held while the lease changes hands
    ├── checkpoint/     Spark's checkpoint; nobody but Spark writes into it. A job that was
    │                   started from an older point goes on in `checkpoint.t1.7`, and so on
    ├── idle.json       sources that the watermark does not wait for; only with idle_after
    ├── sizes/          state size per key group after each of the last epochs
    └── logs/

`job.json` is compared with the code at every start; see `holdfast.checkpoint.compatibility`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.checkpoint.forking import Adoption, ForkPoint
from holdfast.checkpoint.lease import Lease, LeaseFile, held
from holdfast.checkpoint.sizes import SizesLog
from holdfast.checkpoint.timelines import FIRST, Timeline
from holdfast.errors import CorruptionError
from holdfast.storage.files import (
    list_names,
    make_directory,
    read_json,
    remove_tree,
    write_json,
)

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """What `job.json` holds."""

    job_id: str
    name: str
    parallelism: int
    key_groups: int
    backend: str = "heap"
    code: str = ""
    """The version of the code that runs it, or has run it last."""
    timeline: str = FIRST
    timelines: tuple[Timeline, ...] = (Timeline(),)
    checkpoint: str = "checkpoint"
    """The directory that Spark uses now."""
    rewind_pending: bool = False
    """Whether the sinks still have to drop what does not belong to the timeline."""
    output_suffix: str = ""
    """Added to the directories of file sinks, since a restore with `--sink new`, or because the
    job is a fork."""
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    locations: Mapping[str, str] = field(default_factory=dict)
    """The directories of sources of files, by uid."""
    named_sources: bool = True
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """File sinks by uid: their `directory`, without the suffix, and their `format`."""
    edges: tuple[tuple[str, str], ...] = ()
    """From which uid to which rows go. Only for people to see."""
    fork: ForkPoint | None = None
    """Where the job came from, if it is a fork of another one."""
    adoption: Adoption | None = None
    """Output of a promoted fork that the sinks still have to take over."""

    def to_dict(self) -> dict[str, Any]:
        # Operators become a list, because their order matters.
        operators = [{"uid": uid, **step} for uid, step in self.operators.items()]
        timelines = [asdict(each) for each in self.timelines]
        rare = {
            "outputs": {uid: dict(each) for uid, each in self.outputs.items()},
            "edges": [list(edge) for edge in self.edges],
            "fork": self.fork and asdict(self.fork),
            "adoption": self.adoption and asdict(self.adoption),
        }
        fields = {name: value for name, value in vars(self).items() if name not in rare}
        there = {name: value for name, value in rare.items() if value}
        return {**fields, "operators": operators, "timelines": timelines, **there}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> JobIdentity:
        fields = dict(stored)
        fields["sources"] = tuple(fields["sources"])
        fields["operators"] = {
            step["uid"]: {name: value for name, value in step.items() if name != "uid"}
            for step in fields["operators"]
        }
        if "timelines" in fields:
            fields["timelines"] = tuple(Timeline(**each) for each in fields["timelines"])
        fields["edges"] = tuple((one, other) for one, other in fields.get("edges", ()))
        if fields.get("fork"):
            fields["fork"] = ForkPoint(**fields["fork"])
        if fields.get("adoption"):
            fields["adoption"] = Adoption(**fields["adoption"])
        return cls(**fields)


class JobDirectory:
    """The files of one job."""

    def __init__(self, storage: Path, name: str) -> None:
        self.name = name
        self.path = storage.expanduser().absolute() / name
        self.logs = self.path / "logs"
        self.sizes = SizesLog(self.path / "sizes")
        self.lease = LeaseFile(self.path, name)
        self._identity = self.path / "job.json"

    @classmethod
    def at(cls, path: Path) -> JobDirectory:
        """By its own path, as the registry keeps it."""
        return cls(path.parent, path.name)

    @classmethod
    def around(cls, path: Path) -> JobDirectory | None:
        """The job inside whose directory `path` lies, if there is one."""
        real = path.resolve()
        candidates = (cls.at(each) for each in (real, *real.parents))
        return next((each for each in candidates if each._identity.is_file()), None)

    @property
    def checkpoint(self) -> Path:
        """Where Spark's checkpoint is: another directory in every timeline."""
        known = read_json(self._identity) if self._identity.exists() else {}
        return self.path / str(known.get("checkpoint", "checkpoint"))

    def load(self) -> JobIdentity | None:
        if not self._identity.exists():
            if self.checkpoint.exists():
                raise CorruptionError(
                    "JOB_FILE_MISSING",
                    f"{self.checkpoint} exists, but {self._identity} does not.",
                    fix=f"restore job.json from a backup, or move {self.path} away to start "
                    "the job without its state.",
                )
            return None
        stored = read_json(self._identity)
        if not isinstance(stored, dict) or stored.pop("format", None) != FORMAT_VERSION:
            raise CorruptionError(
                "JOB_FILE_UNREADABLE",
                f"{self._identity} is not a job file of format {FORMAT_VERSION}.",
                fix="run the holdfast version that wrote it, or restore it from a backup.",
            )
        return JobIdentity.from_dict(stored)

    def create(self, parallelism: int, key_groups: int, backend: str) -> JobIdentity:
        """A new identity; it is kept only once :meth:`save` is called.

        A job whose state was discarded keeps its id: its sinks know it by that. A fork stays
        one: it must not write where its parent does.
        """
        make_directory(self.logs)
        known = read_json(self._identity) if self._identity.exists() else {}
        fork = ForkPoint(**known["fork"]) if known.get("fork") else None
        return JobIdentity(
            job_id=known.get("job_id") or secrets.token_hex(8),
            name=self.name,
            parallelism=parallelism,
            key_groups=key_groups,
            backend=backend,
            output_suffix=known["output_suffix"] if fork else "",
            fork=fork,
        )

    def save(self, identity: JobIdentity) -> None:
        write_json(self._identity, {"format": FORMAT_VERSION, **identity.to_dict()})

    def attempt_log(self, attempt: int) -> Path:
        return self.logs / f"attempt-{attempt:05d}.log"

    def discard_state(self) -> None:
        """Remove the checkpoint, of all timelines, and what belongs to it."""
        for name in self.checkpoints():
            remove_tree(self.path / name)
        self.sizes.remove()

    def checkpoints(self) -> set[str]:
        """The names of all that are there, of whatever timeline, and of those that a restore
        which was cut short has begun, under hidden names."""
        names = list_names(self.path)
        return {name for name in names if name.lstrip(".").partition(".")[0] == "checkpoint"}

    def forget(self) -> None:
        """Be a job that has never run."""
        self.discard_state()
        self._identity.unlink(missing_ok=True)

    def last_begun(self) -> int | None:
        """The newest epoch whose input is fixed."""
        return _newest(self.checkpoint / "offsets")

    def last_committed(self) -> int | None:
        """The newest epoch that Spark has committed."""
        return _newest(self.checkpoint / "commits")

    @contextmanager
    def locked(self) -> Iterator[Lease]:
        """Hold the job against a second driver while it runs in this process."""
        with held(self.lease) as lease:
            yield lease


def _newest(log: Path) -> int | None:
    return max((int(name) for name in list_names(log) if name.isdigit()), default=None)
