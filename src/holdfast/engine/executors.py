"""The executors of a cluster: who came, who was lost, and whether anybody is left.

Spark runs the tasks of a lost executor again elsewhere, and waits for ever if there is no
elsewhere. It says so in its log only. Here a thread looks every second, and what has changed
becomes events of the job. With a local master there is nothing to watch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.record import JobEvent
from holdfast.engine.lost_tasks import LostTask, in_words, read_lost_tasks
from holdfast.engine.session import has_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 1.0
_STOP_SECONDS = 10.0
_GRACE_SECONDS = 15.0
"""Executors need some seconds to start; none at first is nothing to report."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Executor:
    """One executor as Spark's status store has it."""

    id: str
    address: str
    cores: int = 1
    active: bool = True
    running_tasks: int = 0
    """Of a lost one: those whose end Spark has not counted yet."""
    failed_tasks: int = 0
    reason: str = ""
    """Why it was lost."""
    lost_tasks: tuple[LostTask, ...] = ()
    """Those that it took with it, as far as Spark names them."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is known so far; the next look is compared with it."""

    executors: Mapping[str, Executor] = field(default_factory=dict)
    alone_since: datetime | None = None
    """Since when there is no executor."""
    told: bool = False
    """Whether that has been reported."""

    def look(
        self, at: datetime, seen: Mapping[str, Executor]
    ) -> tuple[Watch, tuple[JobEvent, ...]]:
        """What a look shows: the next watch, and what happened in between."""
        left = sum(executor.active for executor in seen.values())
        events = [
            *(_added(at, seen[name]) for name in self._came(seen)),
            *(
                _lost(at, self.executors.get(name), seen[name], left)
                for name in self.newly_lost(seen)
            ),
        ]
        if left:
            if self.told and self.alone_since is not None:
                events.append(_back(at, left, self.alone_since))
            return Watch(executors=dict(seen)), tuple(events)
        since = self.alone_since or at
        waited = (at - since).total_seconds()
        tell = not self.told and (bool(seen) or waited >= _GRACE_SECONDS)
        if tell:
            events.append(_none(at, waited, ever=bool(seen)))
        told = self.told or tell
        return Watch(executors=dict(seen), alone_since=since, told=told), tuple(events)

    def _came(self, seen: Mapping[str, Executor]) -> list[str]:
        return [name for name in seen if name not in self.executors]

    def newly_lost(self, seen: Mapping[str, Executor]) -> list[str]:
        """Spark lists a lost one for a while, with the reason; it is reported once."""
        return [
            name
            for name, executor in seen.items()
            if not executor.active
            and (name not in self.executors or self.executors[name].active)
        ]


def _added(at: datetime, executor: Executor) -> JobEvent:
    cores = f"{executor.cores} core{'s' * (executor.cores != 1)}"
    return JobEvent(
        at=at,
        kind="executor_added",
        text=f"executor {executor.id} on {executor.address} has come, with {cores}.",
        data={"executor": executor.id, "address": executor.address, "cores": executor.cores},
    )


def _lost(at: datetime, before: Executor | None, now: Executor, left: int) -> JobEvent:
    failed = now.failed_tasks - (before.failed_tasks if before else 0)
    named = now.lost_tasks
    tasks = max(now.running_tasks + failed, len(named))
    again = {0: "none of its tasks was running", 1: "1 task is run again"}.get(
        tasks, f"{tasks} tasks are run again"
    )
    if named:
        again += f" ({in_words(named)})"
    reason = now.reason or "no reason given"
    return JobEvent(
        at=at,
        kind="executor_lost",
        text=f"executor {now.id} on {now.address} was lost ({reason}); {again}, "
        f"{left} executor{'s' * (left != 1)} left.",
        data={
            "executor": now.id,
            "address": now.address,
            "reason": now.reason,
            "tasks": tasks,
            "retried": [task.to_dict() for task in named],
            "left": left,
        },
    )


def _none(at: datetime, waited: float, *, ever: bool) -> JobEvent:
    why = "the last executor is gone" if ever else f"no executor has come for {waited:.0f} s"
    return JobEvent(
        at=at,
        kind="no_executors",
        text=f"{why}; the job waits for one and then goes on.",
        data={"ever": ever},
    )


def _back(at: datetime, count: int, since: datetime) -> JobEvent:
    seconds = (at - since).total_seconds()
    return JobEvent(
        at=at,
        kind="executors_back",
        text=f"{count} executor{'s' * (count != 1)} after {seconds:.0f} s without any; "
        "the job goes on.",
        data={"executors": count, "seconds": round(seconds, 1)},
    )


# -- the thread ---------------------------------------------------------------------------


def watch_executors(
    session: SparkSession,
    on_event: Callable[[JobEvent], None],
    *,
    every: float = _POLL_SECONDS,
) -> Callable[[], None]:
    """Report what happens to the executors, until the returned function is called."""
    if not has_executors(session):
        return lambda: None
    store = session.sparkContext._jsc.sc().statusStore()
    gateway = session.sparkContext._gateway
    stopped = threading.Event()

    def run() -> None:
        watch, last = Watch(), False
        while not last:
            last = stopped.wait(every)  # one last look, for what has just happened
            try:
                seen = read_executors(store)
                for name in watch.newly_lost(seen):
                    seen[name] = _with_its_tasks(gateway, store, seen[name])
                watch, events = watch.look(datetime.now(UTC), seen)
                for event in events:
                    on_event(event)
            except Exception as error:  # the JVM is gone, or a report was not taken
                logger.debug("executors not seen reason=%r", error)

    thread = threading.Thread(target=run, name="executors", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join(_STOP_SECONDS)

    return stop


def read_executors(store: Any) -> dict[str, Executor]:
    """All executors that Spark's status store knows, by id; the driver is not one."""
    summaries = store.executorList(False)
    found = (_executor(summaries.apply(place)) for place in range(summaries.size()))
    return {executor.id: executor for executor in found if _counts(executor)}


def _with_its_tasks(gateway: Any, store: Any, lost: Executor) -> Executor:
    """Asked only for one that was just lost: it takes many questions to the JVM."""
    try:
        return replace(lost, lost_tasks=read_lost_tasks(gateway, store, lost.id))
    except Exception as error:  # a stage that Spark forgets meanwhile
        logger.debug("lost tasks not seen executor=%s reason=%r", lost.id, error)
        return lost


def _counts(executor: Executor) -> bool:
    """One whose address has no port yet is still on its way."""
    return executor.id != "driver" and (":" in executor.address or not executor.active)


def _executor(summary: Any) -> Executor:
    reason = summary.removeReason()
    return Executor(
        id=summary.id(),
        address=summary.hostPort(),
        cores=summary.totalCores(),
        active=summary.isActive(),
        running_tasks=summary.activeTasks(),
        failed_tasks=summary.failedTasks(),
        reason=" ".join(reason.get().split()) if reason.isDefined() else "",
    )
