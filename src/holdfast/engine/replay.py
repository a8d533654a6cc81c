"""What comes after the trunk, rebuilt on an epoch's rows.

The pipeline function runs once more with an :class:`EpochPlanner` behind its Flow. It hands
out the epoch's rows where the steps are, so that everything behind them is rebuilt by the
user's own code on a plain batch frame.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.engine.frames import StreamFrame
from holdfast.engine.trunk import (
    EpochFrames,
    Trunk,
    aggregated,
    step_frame,
    windows_aggregated,
)
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.job.flow import Flow
from holdfast.job.graph import JobGraph
from holdfast.job.job import Job
from holdfast.sinks.base import Sink
from holdfast.sources.base import BAD_SIDE, Source
from holdfast.state.plan import LatePolicy
from holdfast.state.process import KeyedProcess


def replay(job: Job, session: SparkSession, trunk: Trunk, frames: EpochFrames) -> EpochPlanner:
    """Run the user's pipeline on an epoch's rows."""
    planner = EpochPlanner(session, trunk, frames)
    job.declared_pipeline(Flow(planner, JobGraph()))
    return planner


class EpochPlanner:
    """The planner behind the Flow while an epoch's branches are rebuilt."""

    def __init__(self, session: SparkSession, trunk: Trunk, frames: EpochFrames) -> None:
        self._session, self._trunk, self._frames = session, trunk, frames
        self.sinks: dict[str, DataFrame] = {}

    def is_frame(self, value: object) -> bool:
        return isinstance(value, DataFrame)

    def columns(self, frame: DataFrame) -> list[str]:
        return frame.columns

    def read(self, uid: str, source: Source) -> StreamFrame:
        # Rows straight from a source are never needed here: such sinks have cuts.
        rows = self._empty(source.row_schema)
        return StreamFrame(
            rows,
            root=uid,
            sides={
                BAD_SIDE: lambda: StreamFrame(
                    self._empty(source.bad_schema), root=f"{uid}/{BAD_SIDE}"
                )
            },
        )

    def watermark(
        self, frame: DataFrame, column: str, delay: timedelta, idle_after: timedelta | None
    ) -> DataFrame:
        return frame

    def ingestion_time(self, frame: DataFrame, column: str) -> DataFrame:
        return frame.withColumn(column, f.current_timestamp())

    def process(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        process: KeyedProcess,
        *,
        late: LatePolicy | None,
        broadcast: DataFrame | None,
    ) -> StreamFrame:
        plan = self._trunk.steps[uid]
        return step_frame(plan, lambda tag: self._frames.step_rows(uid, tag))

    def aggregate(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        rolling: bool,
    ) -> StreamFrame:
        return StreamFrame(self._rows(uid, lambda: aggregated(frame, keys, columns)), root=uid)

    def window_process(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        process: WindowProcess,
        *,
        windowing: Windowing,
        late: LateWindowPolicy | None,
    ) -> StreamFrame:
        plan = self._trunk.steps[uid]
        return step_frame(plan, lambda tag: self._frames.step_rows(uid, tag))

    def window_aggregate(
        self,
        uid: str,
        frame: DataFrame,
        keys: tuple[str, ...],
        columns: dict[str, Any],
        windowing: Windowing,
    ) -> StreamFrame:
        def unread() -> DataFrame:
            # Only its columns matter. A batch frame does not know its event time, but has it.
            times = [name for name, kind in frame.dtypes if kind.startswith("timestamp")]
            return windows_aggregated(frame, keys, columns, windowing, times[0])

        return StreamFrame(self._rows(uid, unread), root=uid)

    def name_stateful(self, uid: str, frame: DataFrame) -> StreamFrame:
        return StreamFrame(self._rows(uid, lambda: frame), root=uid)

    def write(self, uid: str, frame: DataFrame, sink: Sink) -> None:
        self.sinks[uid] = frame

    def _rows(self, uid: str, otherwise: Any) -> DataFrame:
        return self._frames.rows(uid) if uid in self._trunk.cuts else otherwise()

    def _empty(self, ddl: str) -> DataFrame:
        return self._session.createDataFrame([], ddl)
