"""`cluster.json`: which processes make up the local cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from holdfast.checkpoint.record import parse_time, time_text
from holdfast.control.cluster.processes import (
    Process,
    family,
    is_alive,
    was_started_with,
)
from holdfast.errors import CorruptionError, NotFoundError
from holdfast.storage.files import read_json, write_json

FORMAT = 1
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A Master or a Worker; its executors are found by the mark that they inherit."""

    name: str
    process: Process
    port: int
    mark: str
    since: datetime

    @property
    def alive(self) -> bool:
        return is_alive(self.process)

    def processes(self) -> list[Process]:
        """What lives of it: itself, its executors, their Python workers."""
        return family(self.process, self.mark)

    def executors(self) -> list[Process]:
        """The JVMs in which it runs tasks of jobs."""
        return [each for each in self.processes() if was_started_with(each, _EXECUTOR)]


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    id: str
    cores: int
    memory: str
    web_port: int
    master: Member | None = None
    workers: tuple[Member, ...] = ()

    @property
    def url(self) -> str:
        """What a driver connects to."""
        return "" if self.master is None else f"spark://127.0.0.1:{self.master.port}"

    @property
    def members(self) -> tuple[Member, ...]:
        return (() if self.master is None else (self.master,)) + self.workers

    @property
    def living(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.alive)

    def mark(self, name: str) -> str:
        return f"{self.id}/{name}"

    def with_worker(self, worker: Member) -> Self:
        """A worker takes the place of a gone one with its name."""
        others = [each for each in self.workers if each.name != worker.name]
        workers = sorted([*others, worker], key=lambda each: worker_number(each.name))
        return replace(self, workers=tuple(workers))

    def free_names(self, count: int) -> list[str]:
        """Names for new workers: of those that are gone first, then new ones."""
        taken = {worker.name for worker in self.workers if worker.alive}
        names = (worker_name(number) for number in range(1, len(taken) + count + 1))
        return [name for name in names if name not in taken][:count]


def worker_name(number: int) -> str:
    return f"worker-{number}"


def worker_number(name: str) -> int:
    return int(name.rpartition("-")[2])


def save_record(path: Path, record: ClusterRecord) -> None:
    write_json(
        path,
        {
            "format": FORMAT,
            "id": record.id,
            "url": record.url,
            "cores": record.cores,
            "memory": record.memory,
            "web_port": record.web_port,
            "master": None if record.master is None else _plain(record.master),
            "workers": [_plain(worker) for worker in record.workers],
        },
    )


def load_record(path: Path) -> ClusterRecord | None:
    """The cluster that was started last and not ended; its processes may be gone."""
    try:
        fields = read_json(path)
    except NotFoundError:
        return None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CorruptionError(
            "CLUSTER_FILE_UNREADABLE",
            f"{path} is not a cluster file of format {FORMAT}.",
            fix="use the holdfast that wrote it; or end its processes by hand and remove the "
            "file.",
            path=str(path),
        )
    return ClusterRecord(
        id=fields["id"],
        cores=fields["cores"],
        memory=fields["memory"],
        web_port=fields["web_port"],
        master=None if fields["master"] is None else _member(fields["master"]),
        workers=tuple(_member(worker) for worker in fields["workers"]),
    )


def _plain(member: Member) -> dict[str, Any]:
    return asdict(member) | {"since": time_text(member.since)}


def _member(fields: Mapping[str, Any]) -> Member:
    since = parse_time(fields["since"])
    assert since is not None
    return Member(
        name=fields["name"],
        process=Process(**fields["process"]),
        port=fields["port"],
        mark=fields["mark"],
        since=since,
    )
