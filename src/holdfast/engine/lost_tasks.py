"""Which tasks an executor takes with it: what Spark has to run again elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

_STAGES = 20
"""The newest ones are enough: all others were over long before the loss."""
_TASKS = 10_000
_LOST = "ExecutorLostFailure"
"""How Spark begins the reason of a task that failed because its executor is gone."""


@dataclass(frozen=True, kw_only=True, order=True)
class LostTask:
    """A task as Spark's own log and pages name it."""

    stage: int
    partition: int
    task: int

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def in_words(tasks: Sequence[LostTask]) -> str:
    """Such as "stage 3: partitions 0, 1"."""
    stages = groupby(sorted(tasks), key=lambda each: each.stage)
    return "; ".join(_stage_in_words(stage, [*of_stage]) for stage, of_stage in stages)


def _stage_in_words(stage: int, tasks: Sequence[LostTask]) -> str:
    partitions = ", ".join(str(each.partition) for each in tasks)
    return f"stage {stage}: partition{'s' * (len(tasks) != 1)} {partitions}"


def read_lost_tasks(gateway: Any, store: Any, executor: str) -> tuple[LostTask, ...]:
    """Of a lost executor, from Spark's status store."""
    return tuple(sorted(_found(store, _stages(gateway, store), executor)))


def _stages(gateway: Any, store: Any) -> Any:
    """Newest first. Also those that are over: a task that is run again may be quick."""
    any_status, no_quantiles = (
        gateway.jvm.java.util.ArrayList(),
        gateway.new_array(gateway.jvm.double, 0),
    )
    return store.stageList(any_status, False, False, no_quantiles, any_status)


def _found(store: Any, stages: Any, executor: str) -> Iterator[LostTask]:
    for place in range(min(stages.size(), _STAGES)):
        stage = stages.apply(place)
        tasks = store.taskList(stage.stageId(), stage.attemptId(), _TASKS)
        for number in range(tasks.size()):
            task = tasks.apply(number)
            if task.executorId() == executor and _was_cut_short(task):
                yield LostTask(
                    stage=stage.stageId(), partition=task.partitionId(), task=task.taskId()
                )


def _was_cut_short(task: Any) -> bool:
    """Spark counts a task as running until it has noted its end."""
    reason = task.errorMessage()
    lost = reason.isDefined() and reason.get().startswith(_LOST)
    return bool(task.status() == "RUNNING" or (task.status() == "FAILED" and lost))
