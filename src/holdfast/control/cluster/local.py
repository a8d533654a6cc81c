"""The local cluster: up, add, kill, down, and who is there."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.control.cluster.place import ClusterPlace, write_private
from holdfast.control.cluster.plan import (
    DEFAULTS_FILE,
    LOOPBACK,
    WEB_KEY,
    ClusterSize,
    Launch,
    LaunchPlan,
    conf_files,
    conf_value,
)
from holdfast.control.cluster.processes import Process, end_all, find_process, marked
from holdfast.control.cluster.record import ClusterRecord, Member, load_record, save_record
from holdfast.control.cluster.status import ask_master, workers_by_port
from holdfast.control.doctor import require_environment
from holdfast.control.java import require_java
from holdfast.errors import (
    ConflictError,
    EnvironmentProblem,
    HoldfastError,
    NotFoundError,
    RunFailedError,
)
from holdfast.storage.files import exclusive_lock

_START_SECONDS = 90.0
_ASK_SECONDS = 10.0
_KILL_SECONDS = 30.0
_POLL_SECONDS = 0.1
_SHOWN_LINES = 8


@dataclass(frozen=True, kw_only=True)
class MemberStatus:
    """One line of `cluster ps`."""

    name: str
    state: str
    """`alive`, `not registered` (with the Master) or `gone`."""
    pid: int | None
    address: str
    cores: int | None
    cores_used: int | None
    executors: tuple[int, ...]
    """Pids of the JVMs in which it runs tasks of jobs."""
    memory: str | None
    since: datetime
    log: Path


class LocalCluster:
    """The cluster of one home directory. Every change holds its lock."""

    def __init__(self, home: Path) -> None:
        self.place = ClusterPlace.of(home)

    # -- what there is --------------------------------------------------------------------

    def record(self) -> ClusterRecord | None:
        return load_record(self.place.record)

    def members(self) -> list[MemberStatus]:
        """The Master and its workers, those that are gone too; empty without a cluster."""
        record = self.record()
        if record is None:
            return []
        known = workers_by_port(self._ask(record))
        return [self._status(record, member, known) for member in record.members]

    def running(self) -> ClusterRecord:
        """The cluster, if its Master lives."""
        record = self.record()
        if record is None or record.master is None or not record.master.alive:
            gone = "" if record is None else "; the Master of the last one is gone"
            raise NotFoundError(
                "CLUSTER_NOT_RUNNING",
                f"there is no local cluster in {self.place.directory}{gone}.",
                fix="`holdfast cluster down`, then `holdfast cluster up`."
                if gone
                else "`holdfast cluster up` starts one; --home must be the same.",
            )
        return record

    def _status(
        self, record: ClusterRecord, member: Member, known: dict[int, Any]
    ) -> MemberStatus:
        is_master = member is record.master
        alive = member.alive
        account = known.get(member.port) if alive else None
        return MemberStatus(
            name=member.name,
            state=_state(alive=alive, registered=is_master or account is not None),
            pid=member.process.pid if alive else None,
            address=record.url if is_master else f"{LOOPBACK}:{member.port}",
            cores=None if is_master else record.cores,
            cores_used=None if account is None else account["coresused"],
            executors=tuple(each.pid for each in ([] if is_master else member.executors())),
            memory=None if is_master else record.memory,
            since=member.since,
            log=self.place.log(member.name),
        )

    def _ask(self, record: ClusterRecord) -> Any:
        """The Master's account, or None: a port may be another program's by now."""
        try:
            text = (self.place.conf / DEFAULTS_FILE).read_text(encoding="utf-8")
        except OSError:
            return None
        account = ask_master(record.web_port, conf_value(text, WEB_KEY))
        return account if account and account.get("url") == record.url else None

    # -- changes --------------------------------------------------------------------------

    def up(self, *, workers: int, size: ClusterSize) -> list[MemberStatus]:
        """Start a Master and workers; returns when all workers have registered."""
        plan = self._plan(size)
        with self._locked():
            self._refuse_if_there()
            self.place.clear()
            for name, text in conf_files(size).items():
                write_private(self.place.conf / name, text)
            record = ClusterRecord(
                id=uuid.uuid4().hex, cores=size.cores, memory=size.memory, web_port=_free_port()
            )
            with self._all_or_nothing(record):
                record = self._start_master(plan, record)
                self._start_workers(plan, record, record.free_names(workers))
        return self.members()

    def add(self, *, workers: int) -> list[MemberStatus]:
        """Start more workers, of the cluster's size. Names of gone ones are used again."""
        with self._locked():
            record = self.running()
            plan = self._plan(ClusterSize(cores=record.cores, memory=record.memory))
            self._start_workers(plan, record, record.free_names(workers))
        return self.members()

    def kill(self, worker: str) -> list[Process]:
        """SIGKILL to a worker, its executors and their Python workers; those it hit."""
        with self._locked():
            record = self.running()
            found = [member for member in record.workers if member.name == worker]
            if not found or not found[0].alive:
                names = [member.name for member in record.workers if member.alive]
                raise NotFoundError(
                    "WORKER_NOT_FOUND",
                    f"no worker {worker!r} is running.",
                    fix=f"running: {', '.join(names) or 'none'}; see `holdfast cluster ps`.",
                )
            hit = found[0].processes()
            self._end(found, ask_seconds=0)
        return hit

    def down(self) -> list[str]:
        """End everything and wait until it is gone; the names of what was alive."""
        if not self.place.directory.exists():
            return []
        with self._locked():
            record = self.record()
            if record is None:
                return []
            names = [member.name for member in record.living]
            self._end_record(record)
        return names

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.place.make()
        with exclusive_lock(self.place.lock):
            yield

    def _plan(self, size: ClusterSize) -> LaunchPlan:
        require_environment()
        return LaunchPlan(
            java=require_java().executable,
            spark_home=spark_home(),
            place=self.place,
            size=size,
            inherited=os.environ,
        )

    def _refuse_if_there(self) -> None:
        record = self.record()
        if record is None:
            return
        there = [f"{member.name} (process {member.process.pid})" for member in record.living]
        if there:
            raise ConflictError(
                "CLUSTER_IS_RUNNING",
                f"there is a cluster already: {record.url}, {', '.join(there)}.",
                fix="`holdfast cluster add` starts more workers; `holdfast cluster down` ends "
                "it.",
                url=record.url,
            )
        # All that is known is gone; what may be left of executors must go too.
        self._end_record(record)

    @contextmanager
    def _all_or_nothing(self, record: ClusterRecord) -> Iterator[None]:
        save_record(self.place.record, record)
        try:
            yield
        except BaseException:
            self._end_record(self.record() or record)
            raise

    # -- starting -------------------------------------------------------------------------

    def _start_master(self, plan: LaunchPlan, record: ClusterRecord) -> ClusterRecord:
        port, mark = _free_port(), record.mark("master")
        launch = plan.master(mark, port=port, web_port=record.web_port)
        record = replace(record, master=self._start(launch, mark, port))
        save_record(self.place.record, record)
        # Its web page takes longer; workers need not wait for that.
        self._await(lambda: _answers(port), record.members)
        return record

    def _start_workers(
        self, plan: LaunchPlan, record: ClusterRecord, names: Sequence[str]
    ) -> None:
        started: list[Member] = []
        try:
            for name in names:
                port, mark = _free_port(), record.mark(name)
                launch = plan.worker(name, mark, port=port, master_url=record.url)
                started.append(self._start(launch, mark, port))
                record = record.with_worker(started[-1])
                save_record(self.place.record, record)
            ports = {member.port for member in started}
            self._await(lambda: ports <= workers_by_port(self._ask(record)).keys(), started)
        except BaseException:
            self._end(started)
            raise

    def _start(self, launch: Launch, mark: str, port: int) -> Member:
        launch.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(launch.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            child = subprocess.Popen(
                launch.command,
                env=dict(launch.environment),
                cwd=self.place.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: it survives the terminal and its Ctrl-C.
                start_new_session=True,
            )
        process = find_process(child.pid)
        if process is None:
            raise self._did_not_start(launch.name, f"`{shlex.join(launch.command)}` died")
        # It is meant to outlive this process; nobody will wait for it.
        child.returncode = 0
        return Member(
            name=launch.name, process=process, port=port, mark=mark, since=datetime.now(UTC)
        )

    def _await(self, ready: Callable[[], bool], members: Sequence[Member]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            for member in members:
                if not member.alive:
                    raise self._did_not_start(member.name, "its process ended")
            if time.monotonic() > deadline:
                raise self._did_not_start(
                    members[-1].name, f"it did not answer within {_START_SECONDS:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def _did_not_start(self, name: str, reason: str) -> EnvironmentProblem:
        log = self.place.log(name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        said = "".join(f"\n{line}" for line in lines[-_SHOWN_LINES:])
        return EnvironmentProblem(
            "CLUSTER_DID_NOT_START",
            f"{name} did not start: {reason}. Nothing of it is left.{said}",
            fix=f"see {log}; `holdfast doctor` checks Java, memory and disk.",
            log=str(log),
        )

    # -- ending ---------------------------------------------------------------------------

    def _end_record(self, record: ClusterRecord) -> None:
        # Workers first: with its Master gone a Worker would try to find it again.
        self._end(record.workers)
        self._end(record.members)
        # An `up` that was killed may have started somebody and not come to write it down.
        self._end_all(lambda: marked(record.mark("")), _ASK_SECONDS)
        self.place.clear_running()

    def _end(self, members: Sequence[Member], *, ask_seconds: float = _ASK_SECONDS) -> None:
        self._end_all(
            lambda: [process for member in members for process in member.processes()],
            ask_seconds,
        )

    def _end_all(self, living: Callable[[], Iterable[Process]], ask_seconds: float) -> None:
        left = end_all(living, ask_seconds=ask_seconds, kill_seconds=_KILL_SECONDS)
        if left:
            raise self._not_gone(left)

    def _not_gone(self, left: Sequence[Process]) -> HoldfastError:
        pids = ", ".join(str(process.pid) for process in left)
        return RunFailedError(
            "CLUSTER_NOT_GONE",
            f"processes {pids} are still there {_KILL_SECONDS:g} s after SIGKILL.",
            fix="they may be stuck in a file system; run `holdfast cluster down` again later.",
        )


def spark_home() -> Path:
    """The PySpark package, found without importing it, which would take a second."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None  # `require_environment` has looked
    return Path(spec.origin).parent


def _free_port() -> int:
    """A port that nobody has now. If one is taken meanwhile, the start fails and says so."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def _state(*, alive: bool, registered: bool) -> str:
    if not alive:
        return "gone"
    return "alive" if registered else "not registered"
