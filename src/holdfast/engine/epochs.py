"""One epoch: the trunk's rows go to every sink, each commits, the sizes are noted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame

from holdfast.checkpoint.record import SinkResult, StateSize
from holdfast.checkpoint.sizes import Sizes, SizesLog
from holdfast.engine.replay import replay
from holdfast.engine.trunk import EpochFrames, SinkPlan, Trunk
from holdfast.engine.writers import Rows, SinkWriter
from holdfast.errors import HoldfastError
from holdfast.faults import fault_point
from holdfast.job.job import Job

GroupSizes = dict[tuple[str, int], tuple[int, int, int, float]]
"""(step uid, key group) -> (live keys, bytes in the log; of this epoch: late records, seconds
of loading)."""


class LatestSizes(AccumulatorParam[GroupSizes]):
    """Collects sizes from the tasks. A task that is repeated reports the same again."""

    def zero(self, value: GroupSizes) -> GroupSizes:
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: GroupSizes, value2: GroupSizes
    ) -> GroupSizes:
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class EpochOutcome:
    """What the sinks and the state of one epoch came to."""

    epoch: int
    sinks: Mapping[str, SinkResult]
    state: Mapping[str, StateSize]
    late: Mapping[str, int]
    """Late records by step."""
    sink_seconds: float
    worker_seconds: float
    """Waiting for Python workers, in the first epoch of an attempt."""
    load_seconds: float
    """All workers together, for loading key groups."""


class EpochRunner:
    """Called by Spark for every micro-batch."""

    def __init__(
        self,
        *,
        job: Job,
        trunk: Trunk,
        writers: Mapping[str, SinkWriter],
        sizes: Any,
        sizes_log: SizesLog,
        known_sizes: Sizes,
        on_begin: Callable[[int], None],
        await_workers: Callable[[], float],
    ) -> None:
        self._job, self._trunk, self._writers = job, trunk, writers
        self._sizes, self._sizes_log, self._on_begin = sizes, sizes_log, on_begin
        self._await_workers = await_workers
        self._outcomes: dict[int, EpochOutcome] = {}
        self.error: HoldfastError | None = None
        sizes.add({group: (keys, size, 0, 0.0) for group, (keys, size) in known_sizes.items()})

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        try:
            self._run(frame, epoch)
        except HoldfastError as error:
            # Spark carries only text from here; keep the real one for the driver.
            self.error = error
            raise

    def take_outcome(self, epoch: int) -> EpochOutcome | None:
        """Of an epoch that has been run; once."""
        return self._outcomes.pop(epoch, None)

    def _run(self, frame: DataFrame, epoch: int) -> None:
        self._on_begin(epoch)
        self._sizes.value = {
            group: (keys, size, 0, 0.0) for group, (keys, size, *_) in self._sizes.value.items()
        }
        fault_point("epoch.start")
        open_sinks = [
            plan for plan in self._trunk.sinks if not self._writers[plan.uid].has(epoch)
        ]
        results = {
            plan.uid: SinkResult(rows=0, bytes=0, skipped=True)
            for plan in self._trunk.sinks
            if plan not in open_sinks
        }
        waited = self._await_workers()
        started = time.monotonic()
        if open_sinks:
            results |= self._write(frame, epoch, open_sinks)
        else:
            # Every sink has this epoch, but its state is not committed: it must be computed.
            frame.write.format("noop").mode("overwrite").save()
        sink_seconds = time.monotonic() - started
        self._note(epoch, results, sink_seconds, waited)
        fault_point("epoch.end")

    def _write(
        self, frame: DataFrame, epoch: int, sinks: list[SinkPlan]
    ) -> dict[str, SinkResult]:
        shared = len(sinks) > 1
        if shared:
            frame.persist()
        try:
            frames = EpochFrames(self._trunk, frame)
            rebuilt = (
                # An epoch's frame belongs to a session of its own, cloned for the query.
                replay(self._job, frame.sparkSession, self._trunk, frames).sinks
                if any(not plan.root for plan in sinks)
                else {}
            )
            return {
                plan.uid: self._writers[plan.uid].write(
                    epoch, self._rows(plan, frames, rebuilt)
                )
                for plan in sinks
            }
        finally:
            if shared:
                frame.unpersist()

    def _rows(
        self, plan: SinkPlan, frames: EpochFrames, rebuilt: Mapping[str, DataFrame]
    ) -> Rows:
        if not plan.root:
            return Rows(rebuilt[plan.uid])
        if plan.root in self._trunk.steps:
            return Rows(frames.step_blocks(plan.root), self._trunk.steps[plan.root], plan.tag)
        return Rows(frames.rows(plan.root))

    def _note(
        self, epoch: int, results: dict[str, SinkResult], seconds: float, waited: float
    ) -> None:
        sizes: GroupSizes = self._sizes.value
        state: dict[str, StateSize] = {
            uid: StateSize(rows=0, bytes=0) for uid in self._trunk.steps
        }
        late: dict[str, int] = {}
        for (uid, _), (keys, size, late_rows, _) in sizes.items():
            if uid in state:
                known = state[uid]
                state[uid] = StateSize(rows=known.rows + keys, bytes=known.bytes + size)
                if late_rows:
                    late[uid] = late.get(uid, 0) + late_rows
        self._sizes_log.save(
            epoch,
            {group: (keys, size) for group, (keys, size, *_) in sizes.items()},
            self._job.checkpoint.retained,
        )
        loading = sum(seconds for *_, seconds in sizes.values())
        self._outcomes[epoch] = EpochOutcome(
            epoch, results, state, late, seconds, waited, loading
        )
