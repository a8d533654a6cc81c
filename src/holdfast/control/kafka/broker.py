"""The local broker: up, down, kill, and how it is.

A broker that died comes back with its port and its topics by `up`; `down` ends it on purpose,
and then data that nobody gave a directory for is gone.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast.control.cluster.processes import end_all, find_process
from holdfast.control.java import require_java
from holdfast.control.kafka.plan import COORDINATES, LOOPBACK, VERSION, BrokerPlan
from holdfast.control.kafka.record import BrokerRecord, load_record, save_record
from holdfast.control.maven import pom_for, resolved_jars
from holdfast.errors import (
    ConflictError,
    EnvironmentProblem,
    HoldfastError,
    NotFoundError,
    RunFailedError,
)
from holdfast.storage.files import exclusive_lock, remove_tree, storage_errors

_START_SECONDS = 90.0
_ASK_SECONDS = 30.0
_KILL_SECONDS = 30.0
_POLL_SECONDS = 0.05
_SHOWN_LINES = 8
_PORTS = (20_000, 32_000)
_PORT_ATTEMPTS = 100
_PORT_SECONDS = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class BrokerStatus:
    """What `kafka status` shows."""

    state: str
    """`alive`, `silent` (its process is there and does not answer) or `gone`."""
    address: str
    pid: int | None
    directory: Path
    topics: int | None
    """None where nobody can ask: there is no confluent-kafka, or no answer."""
    since: datetime
    log: Path


class LocalBroker:
    """The broker of one home directory. Every change holds its lock.

    `cache` is where the jars are kept, if not in the home directory.
    """

    def __init__(self, home: Path, *, cache: Path | None = None) -> None:
        self.directory = home / "kafka"
        self._cache = cache or home / "cache"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def _record_file(self) -> Path:
        return self.directory / "broker.json"

    def record(self) -> BrokerRecord | None:
        return load_record(self._record_file)

    @property
    def address(self) -> str:
        """What clients connect to."""
        return self.running().address

    def running(self) -> BrokerRecord:
        record = self.record()
        if record is None or not record.alive:
            raise NotFoundError(
                "BROKER_NOT_RUNNING",
                f"there is no local broker in {self.directory}"
                + ("; the last one is gone." if record else "."),
                fix="`holdfast kafka up` starts it; --home must be the same.",
            )
        return record

    def status(self) -> BrokerStatus | None:
        """None if none was started, or the last one was ended."""
        record = self.record()
        if record is None:
            return None
        topics = count_topics(record.address) if record.alive else None
        state = "gone"
        if record.alive:
            state = "alive" if topics is not None or answers(record.port) else "silent"
        return BrokerStatus(
            state=state,
            address=record.address,
            pid=record.process.pid if record.process and record.alive else None,
            directory=record.directory,
            topics=topics,
            since=record.since,
            log=self.log,
        )

    # -- changes --------------------------------------------------------------------------

    def up(
        self,
        *,
        port: int | None = None,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        busy: bool = False,
        say: Say = lambda text: None,
    ) -> BrokerStatus:
        """Start the broker; returns when it answers. One that died comes back as it was."""
        java = require_java().executable
        with self._locked():
            last = self.record()
            self._refuse_if_there(last)
            record = self._next(last, port, directory)
            _refuse_taken(record.port, chosen=port is not None or last is not None)
            jars = resolved_jars(
                self._cache, f"kafka-broker-{VERSION}", pom_for(COORDINATES), say
            )
            plan = BrokerPlan(
                java=java,
                jars=jars,
                directory=record.directory,
                port=record.port,
                controller_port=free_port(),
                properties=properties or {},
                busy=busy,
            )
            say(f"starting Kafka {VERSION} on {record.address}")
            try:
                self._start(plan, record)
            except BaseException:
                if last is None:  # nothing of it is worth coming back to
                    self._forget(record)
                raise
        status = self.status()
        assert status is not None
        return status

    def down(self) -> BrokerStatus | None:
        """End the broker, and wait until it is gone; what it was, or None."""
        if not self.directory.exists():
            return None
        with self._locked():
            status, record = self.status(), self.record()
            if record is None:
                return None
            self._end(record, ask_seconds=_ASK_SECONDS)
            self._forget(record)
        return status

    def kill(self) -> int:
        """SIGKILL, as a crash; `up` brings it back. The pid that it had."""
        with self._locked():
            record = self.running()
            assert record.process is not None
            self._end(record, ask_seconds=0)
        return record.process.pid

    def _forget(self, record: BrokerRecord) -> None:
        if record.temporary:
            remove_tree(record.directory)
        self._record_file.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with storage_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)
        with exclusive_lock(self.directory / "lock", timeout=_START_SECONDS * 2):
            yield

    def _refuse_if_there(self, record: BrokerRecord | None) -> None:
        if record is not None and record.alive and record.process is not None:
            raise ConflictError(
                "BROKER_IS_RUNNING",
                f"there is a broker already: {record.address} (process "
                f"{record.process.pid}), data in {record.directory}.",
                fix="use that one, or end it with `holdfast kafka down`.",
                address=record.address,
            )

    def _next(
        self, last: BrokerRecord | None, port: int | None, directory: Path | None
    ) -> BrokerRecord:
        if directory is not None:
            place, temporary = directory.expanduser().absolute(), False
        elif last is not None:
            place, temporary = last.directory, last.temporary
        else:
            place, temporary = self.directory / "data", True
            remove_tree(place)
        return BrokerRecord(
            process=None,
            port=port or (last.port if last else free_port()),
            directory=place,
            temporary=temporary,
            since=datetime.now(UTC),
        )

    # -- starting and ending --------------------------------------------------------------

    def _start(self, plan: BrokerPlan, record: BrokerRecord) -> None:
        with storage_errors(plan.directory):
            plan.directory.mkdir(parents=True, exist_ok=True)
            plan.properties_file.write_text(plan.properties_text(), encoding="utf-8")
            plan.properties_file.chmod(0o600)  # it may hold the passwords of a listener
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            if not plan.is_formatted:
                ran = subprocess.run(
                    plan.format_command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                )
                if ran.returncode:
                    raise self._did_not_start("its directory could not be prepared")
            child = subprocess.Popen(
                plan.run_command(),
                cwd=plan.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: it survives the terminal and its Ctrl-C.
                start_new_session=True,
            )
        record = replace(record, process=find_process(child.pid))
        # It is meant to outlive this process; nobody will wait for it.
        child.returncode = 0
        save_record(self._record_file, record)
        try:
            self._await(record)
        except BaseException:
            self._end(record, ask_seconds=0)
            raise

    def _await(self, record: BrokerRecord) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not answers(record.port):
            if not record.alive:
                raise self._did_not_start("its process ended")
            if time.monotonic() > deadline:
                raise self._did_not_start(f"it did not answer within {_START_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _end(self, record: BrokerRecord, *, ask_seconds: float) -> None:
        left = end_all(
            lambda: [record.process] if record.process and record.alive else [],
            ask_seconds=ask_seconds,
            kill_seconds=_KILL_SECONDS,
        )
        if left:
            raise RunFailedError(
                "BROKER_NOT_GONE",
                f"process {left[0].pid} is still there {_KILL_SECONDS:g} s after SIGKILL.",
                fix="it may be stuck in a file system; run `holdfast kafka down` again later.",
            )
        # A process counts as dead when its first thread is; the others hold on to its port.
        deadline = time.monotonic() + _PORT_SECONDS
        while answers(record.port) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _did_not_start(self, reason: str) -> EnvironmentProblem:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        told = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
        said = "".join(f"\n{line[:400]}" for line in told[-_SHOWN_LINES:])
        return EnvironmentProblem(
            "BROKER_DID_NOT_START",
            f"the broker did not start: {reason}.{said}",
            fix=f"see {self.log}; `holdfast doctor` checks Java, memory and disk.",
            log=str(self.log),
        )


def free_port() -> int:
    """A port that nobody has now. If one is taken meanwhile, the start fails and says so.

    Not one of those that the system gives to outgoing connections: while a broker is away, a
    client that keeps trying to reach it could be given the broker's own port.
    """
    for _ in range(_PORT_ATTEMPTS):
        port = random.randrange(*_PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise EnvironmentProblem(
        "NO_FREE_PORT",
        f"{_PORT_ATTEMPTS} ports of {LOOPBACK} between {_PORTS[0]} and {_PORTS[1]} are taken.",
        fix="name one with --port.",
    )


def answers(port: int) -> bool:
    """A broker listens only when it can serve."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def count_topics(address: str) -> int | None:
    """Topics that somebody made, internal ones left out."""
    from holdfast.storage.kafka import topic_names

    try:
        return len([name for name in topic_names(address) if not name.startswith("__")])
    except HoldfastError:
        return None


def _refuse_taken(port: int, *, chosen: bool) -> None:
    if not chosen:
        return
    with socket.socket() as probe:
        # As the broker does: connections that a broker of before has left do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConflictError(
                "PORT_IN_USE",
                f"port {port} of {LOOPBACK} cannot be used: {error.strerror}.",
                fix="choose another one with --port, or leave it out; `ss -ltnp` shows whose "
                "it is.",
                port=port,
            ) from error
