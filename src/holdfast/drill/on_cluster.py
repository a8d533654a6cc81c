"""A local cluster for a drill, and its executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.control.cluster.local import LocalCluster
from holdfast.drill.subject import Subject
from holdfast.drill.waiting import wait
from holdfast.errors import RunFailedError
from holdfast.faults import LOG_VARIABLE
from holdfast.storage.processes import children_of, parent_of

_WORKERS = ("--workers", "2", "--memory", "512m")


@contextmanager
def cluster_for(subject: Subject) -> Iterator[None]:
    """The subject's job runs on it."""
    try:
        up = subject.start("cluster", "up", *_WORKERS)
        if up.wait_for_end("the start of the cluster") != 0:
            raise RunFailedError(
                "DRILL_WENT_WRONG",
                "the cluster did not start.",
                fix=f"look into {subject.place.log}.",
            )
        subject.master = "cluster"
        yield
    finally:
        subject.start("cluster", "down").wait_for_end("the end of the cluster")


def for_executors(subject: Subject, faults: Mapping[str, str]) -> dict[str, str]:
    """Executors inherit nothing from a driver, so faults come to them through Spark."""
    armed = {**faults, LOG_VARIABLE: str(subject.faults_log)}
    through = {f"executorEnv.{name}": value for name, value in armed.items()}
    return {"HOLDFAST_SPARK": json.dumps(through)}


def executor_of(subject: Subject, waiting: int) -> int:
    """The executor that a process is, or works for; any one, if it is not of the cluster."""
    wait(lambda: bool(_executors(subject)), "an executor")
    executors = _executors(subject)
    pid: int | None = waiting
    while pid is not None and pid not in executors:
        pid = parent_of(pid)
    return executors[0] if pid is None else pid


def _executors(subject: Subject) -> list[int]:
    members = LocalCluster(subject.place.directory).members()
    return [
        child
        for member in members
        if member.pid is not None
        for child in children_of(member.pid)
        if is_java(child)
    ]


def is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == "java"
