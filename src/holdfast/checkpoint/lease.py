"""Who may run a job: a lease in the job's directory, with a number that only grows.

A supervisor takes the lease, renews it while it lives, and counts its number up with every
attempt. The number is the *fence*: sinks remember the largest one they have seen and refuse
whoever comes with a smaller one. So a driver that slept through its own replacement (a stopped
process, a frozen machine) can wake up and write nothing.

A lease ends when it is given back, when its owner is seen to be dead, or when it has not been
renewed for :data:`LEASE_SECONDS`. Clocks may jump and differ between machines; before a lease
is taken from somebody who may be alive, its beat is therefore watched for that long on the
watcher's own monotonic clock.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from holdfast.checkpoint.record import parse_time, time_text
from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConflictError, CorruptionError, HoldfastError
from holdfast.storage.files import (
    exclusive_lock,
    make_directory,
    read_json,
    size_of,
    write_json,
)
from holdfast.storage.processes import is_alive, started_at

FORMAT_VERSION = 1
LEASE_SECONDS = 15.0
RENEW_SECONDS = LEASE_SECONDS / 5
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What the lease file says."""

    epoch: int
    """The fence: grows with every owner and every attempt, and never shrinks."""
    owner: str
    """Random, so that an owner knows itself. Empty: nobody."""
    host: str
    pid: int
    process_started: int | None
    beat: int
    """Counts renewals."""
    renewed: datetime
    session: int | None = None
    """The process session of the driver, which must be gone before another one starts."""
    session_started: int | None = None
    """When its first process did. A number of a session is used again once it is empty."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            **asdict(self),
            "renewed": time_text(self.renewed),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Lease:
        known = {name: value for name, value in fields.items() if name != "format"}
        return cls(**known | {"renewed": parse_time(fields["renewed"])})

    @property
    def who(self) -> str:
        return f"process {self.pid} on {self.host}"


Verdict = Literal["free", "held", "stale"]


def judge(
    lease: Lease | None, *, here: str, owner_lives: bool, now: datetime, seconds: float
) -> Verdict:
    """Whether a lease can be taken. `owner_lives` counts only where its host is `here`."""
    if lease is None or not lease.owner:
        return "free"
    if lease.host == here and not owner_lives:
        return "free"
    return "held" if now - lease.renewed <= timedelta(seconds=seconds) else "stale"


class LeaseFile:
    """The lease of one job."""

    def __init__(
        self,
        directory: Path,
        job: str,
        *,
        seconds: float = LEASE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._path, self._lock = directory / "lease.json", directory / "lock"
        self._job, self._seconds = job, seconds
        self._clock = clock or SystemClock()
        self._me = secrets.token_hex(8)

    def read(self) -> Lease | None:
        if size_of(self._path) is None:
            return None
        fields = read_json(self._path)
        try:
            if fields["format"] != FORMAT_VERSION:
                raise ValueError(f"format {fields['format']!r}")  # noqa: TRY301
            return Lease.from_dict(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                "LEASE_UNREADABLE",
                f"{self._path} is not a lease of format {FORMAT_VERSION}: {error}.",
                fix="make sure that nobody runs the job, then remove the file.",
            ) from error

    def acquire(
        self, on_wait: Callable[[Lease], None] = lambda _: None, *, take_over: bool = False
    ) -> Lease:
        """Take the lease, or say who has it. `on_wait` is told if a stale one is watched.

        With `take_over` it is taken also from somebody who lives and renews it. The fence,
        which grows with it, keeps that one from changing anything.
        """
        make_directory(self._path.parent)
        before = self._take(None, take_over=take_over)
        if before.owner == self._me:
            return before
        on_wait(before)
        deadline = self._clock.monotonic() + self._seconds
        while self._clock.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = self.read()
            if found is None or (found.owner, found.beat) != (before.owner, before.beat):
                break
        taken = self._take(before)
        if taken.owner != self._me:
            raise self._held(taken)
        return taken

    def next_attempt(self, lease: Lease, session: int | None = None) -> Lease:
        """A larger fence for the next attempt; `session` is its driver's."""
        started = None if session is None else started_at(session)
        return self._replace(
            lease, epoch=lease.epoch + 1, session=session, session_started=started
        )

    def is_past(self, fence: int) -> bool:
        """Whether somebody has come since with a larger fence."""
        found = self.read()
        return found is not None and found.epoch > fence

    @contextmanager
    def not_past(self, fence: int) -> Iterator[None]:
        """For what a driver that was replaced must not do. Nobody takes over meanwhile, so it
        has to be short."""
        with exclusive_lock(self._lock):
            self.require_not_past(fence)
            yield

    def require_not_past(self, fence: int) -> None:
        if self.is_past(fence):
            raise ConflictError(
                "FENCED",
                f"another run of job {self._job!r} has taken over; this one has stopped "
                "before it changed anything.",
                fix="nothing: the other run goes on. No row is lost or doubled.",
            )

    def renew(self, lease: Lease) -> Lease:
        return self._replace(lease)

    def taken_from(self, lease: Lease) -> ConflictError | None:
        """What to tell somebody who had this lease, if it is another's now."""
        found = self.read()
        if found is None or found.owner == lease.owner:
            return None
        return ConflictError(
            "FENCED",
            f"{_who_has(found)} has taken over job {self._job!r}; this run has ended.",
            fix="nothing: the other run goes on. No row is lost or doubled.",
        )

    def release(self, lease: Lease) -> None:
        self._replace(lease, owner="", session=None)

    def _take(self, watched: Lease | None, *, take_over: bool = False) -> Lease:
        """Ours now; or a stale one that has not been watched yet. Raises if it is held."""
        with exclusive_lock(self._lock):
            found = self.read()
            verdict = judge(
                found,
                here=socket.gethostname(),
                owner_lives=found is not None and is_alive(found.pid, found.process_started),
                now=self._clock.now(),
                seconds=self._seconds,
            )
            unchanged = (
                found is not None
                and watched is not None
                and (found.owner, found.beat) == (watched.owner, watched.beat)
            )
            if found is not None and not unchanged and not take_over:
                if verdict == "held":
                    raise self._held(found)
                if verdict == "stale":
                    return found
            mine = Lease(
                epoch=found.epoch + 1 if found else 1,
                owner=self._me,
                host=socket.gethostname(),
                pid=os.getpid(),
                process_started=started_at(os.getpid()),
                beat=0,
                renewed=self._clock.now(),
                # What the one before has left running is for us to end.
                session=found.session if found else None,
                session_started=found.session_started if found else None,
            )
            write_json(self._path, mine.to_dict())
            return mine

    def _replace(self, lease: Lease, **changes: Any) -> Lease:
        with exclusive_lock(self._lock):
            found = self.read()
            if found is None or found.owner != lease.owner:
                raise self._lost(found)
            renewed = replace(lease, beat=found.beat + 1, renewed=self._clock.now(), **changes)
            write_json(self._path, renewed.to_dict())
            return renewed

    def _held(self, lease: Lease) -> ConflictError:
        age = (self._clock.now() - lease.renewed).total_seconds()
        return ConflictError(
            "JOB_IS_RUNNING",
            f"job {self._job!r} is being run by {lease.who}, which was last heard of "
            f"{max(age, 0):.0f} s ago.",
            fix=f"stop that run first (`holdfast stop {self._job}`); two drivers on one state "
            "would destroy it. If it cannot be stopped, --take-over takes the job from it.",
            host=lease.host,
            pid=lease.pid,
        )

    def _lost(self, found: Lease | None) -> ConflictError:
        return ConflictError(
            "LEASE_LOST",
            f"job {self._job!r} has been taken over by {_who_has(found)}; this process no "
            "longer has it.",
            fix="nothing: the other run goes on. No row is lost or doubled.",
        )


def _who_has(found: Lease | None) -> str:
    return found.who if found and found.owner else "somebody who has ended since"


@contextmanager
def held(file: LeaseFile) -> Iterator[Lease]:
    """Hold the lease of a job that runs in this process; a thread renews it."""
    lease, over = file.acquire(), threading.Event()

    def renew() -> None:
        with suppress(HoldfastError):  # lost, or a full disk: the fence in the sinks remains
            while not over.wait(RENEW_SECONDS):
                file.renew(lease)

    thread = threading.Thread(target=renew, name="holdfast-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        over.set()
        thread.join()
        with suppress(HoldfastError):
            file.release(lease)
