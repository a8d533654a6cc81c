"""Two looks at the executors, and what has happened in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.checkpoint.record import JobEvent
from holdfast.engine.executors import Executor, Watch, read_executors
from holdfast.engine.lost_tasks import LostTask

START = datetime(2026, 11, 17, 5, 0, tzinfo=UTC)


def executor(name: str, **changes: object) -> Executor:
    base = Executor(id=name, address=f"127.0.0.1:4000{name}")
    return replace(base, **changes)  # type: ignore[arg-type]


def lost(name: str, **changes: object) -> Executor:
    return executor(name, active=False, reason="worker lost", **changes)


def look(watch: Watch, second: float, *seen: Executor) -> tuple[Watch, list[JobEvent]]:
    at = START + timedelta(seconds=second)
    watch, events = watch.look(at, {each.id: each for each in seen})
    assert all(event.at == at for event in events)
    return watch, list(events)


def kinds(events: list[JobEvent]) -> list[str]:
    return [event.kind for event in events]


def test_executors_come_once() -> None:
    watch, events = look(Watch(), 0, executor("0", cores=2), executor("1"))
    assert kinds(events) == ["executor_added", "executor_added"]
    assert events[0].text == "executor 0 on 127.0.0.1:40000 has come, with 2 cores."
    assert events[0].data == {"executor": "0", "address": "127.0.0.1:40000", "cores": 2}
    _, events = look(watch, 1, executor("0", running_tasks=1), executor("1"))
    assert events == []


def test_one_is_lost() -> None:
    watch, _ = look(Watch(), 0, executor("0", running_tasks=2), executor("1", failed_tasks=1))
    # One of its two tasks is counted as failed already, the other one not yet.
    watch, events = look(
        watch, 1, lost("0", running_tasks=1, failed_tasks=1), executor("1", failed_tasks=1)
    )
    assert kinds(events) == ["executor_lost"]
    assert events[0].text == (
        "executor 0 on 127.0.0.1:40000 was lost (worker lost); 2 tasks are run again, "
        "1 executor left."
    )
    assert events[0].data == {
        "executor": "0",
        "address": "127.0.0.1:40000",
        "reason": "worker lost",
        "tasks": 2,
        "retried": [],
        "left": 1,
    }
    # Spark goes on listing it, and forgets it one day.
    watch, events = look(watch, 2, lost("0", failed_tasks=2), executor("1"))
    assert events == []
    assert look(watch, 3, executor("1"))[1] == []


def test_the_tasks_of_a_lost_one_are_named() -> None:
    watch, _ = look(Watch(), 0, executor("0", running_tasks=2))
    named = tuple(LostTask(stage=s, partition=p, task=t) for s, p, t in [(3, 1, 9), (3, 0, 8)])
    other = LostTask(stage=4, partition=5, task=12)
    _, (_, event) = look(watch, 1, lost("0", lost_tasks=(*named, other)), executor("1"))
    again = "3 tasks are run again (stage 3: partitions 0, 1; stage 4: partition 5)"
    assert again in event.text
    assert event.data["retried"][0] == {"stage": 3, "partition": 1, "task": 9}


def test_an_idle_one_is_lost() -> None:
    watch, _ = look(Watch(), 0, executor("0"), executor("1"))
    _, events = look(watch, 1, lost("0"), executor("1"))
    assert "none of its tasks was running" in events[0].text


def test_one_that_came_and_went_between_two_looks() -> None:
    _, events = look(Watch(), 0, lost("0", failed_tasks=1), executor("1"))
    assert kinds(events) == ["executor_added", "executor_added", "executor_lost"]
    assert events[2].data["tasks"] == 1


def test_all_are_lost_and_one_comes_back() -> None:
    watch, _ = look(Watch(), 0, executor("0"), executor("1"))
    watch, events = look(watch, 1, lost("0"), lost("1", running_tasks=1))
    assert kinds(events) == ["executor_lost", "executor_lost", "no_executors"]
    assert (
        events[2].text == "the last executor is gone; the job waits for one and then goes on."
    )
    watch, events = look(watch, 60, lost("0"), lost("1"))
    assert events == []  # said once
    watch, events = look(watch, 61.5, lost("0"), lost("1"), executor("2"))
    assert kinds(events) == ["executor_added", "executors_back"]
    assert events[1].text == "1 executor after 60 s without any; the job goes on."
    assert events[1].data == {"executors": 1, "seconds": 60.5}
    assert look(watch, 62, lost("0"), lost("1"), executor("2"))[1] == []


def test_a_replacement_in_the_same_look() -> None:
    watch, _ = look(Watch(), 0, executor("0"))
    _, events = look(watch, 1, lost("0"), executor("1"))
    assert kinds(events) == ["executor_added", "executor_lost"]


def test_none_at_first_is_reported_after_a_while() -> None:
    watch, events = look(Watch(), 0)
    assert events == []
    watch, events = look(watch, 14)
    assert events == []
    watch, events = look(watch, 15)
    assert kinds(events) == ["no_executors"]
    assert events[0].text.startswith("no executor has come for 15 s;")
    _, events = look(watch, 20, executor("0"))
    assert kinds(events) == ["executor_added", "executors_back"]


def test_a_usual_start_is_no_news() -> None:
    watch, _ = look(Watch(), 0)
    _, events = look(watch, 3, executor("0"))
    assert kinds(events) == ["executor_added"]


class _Summary:
    """Answers as Spark's ExecutorSummary does through py4j."""

    def __init__(self, name: str, address: str, *, reason: str | None = None) -> None:
        self.id, self.hostPort = (lambda: name), (lambda: address)
        self.isActive = lambda: reason is None
        self.totalCores = self.activeTasks = self.failedTasks = lambda: 1
        self.removeReason = lambda: self
        self.isDefined, self.get = (lambda: reason is not None), (lambda: reason)


class _Store:
    def __init__(self, *summaries: _Summary) -> None:
        self._summaries = summaries

    def executorList(self, active_only: bool) -> _Store:
        assert not active_only
        return self

    def size(self) -> int:
        return len(self._summaries)

    def apply(self, place: int) -> _Summary:
        return self._summaries[place]


def test_what_is_read_from_the_status_store() -> None:
    found = read_executors(
        _Store(
            _Summary("driver", "127.0.0.1:1"),
            _Summary("0", "127.0.0.1:2"),
            _Summary("1", "127.0.0.1"),  # its block manager has not registered yet
            _Summary("2", "127.0.0.1", reason="worker\nlost"),
        )
    )
    assert list(found) == ["0", "2"]
    assert found["0"] == executor("0", address="127.0.0.1:2", running_tasks=1, failed_tasks=1)
    assert (found["2"].active, found["2"].reason) == (False, "worker lost")
