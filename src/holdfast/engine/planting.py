"""State that Spark cannot take as it lies there, put in place by the new code itself.

The job's code runs for one batch that reads nothing, in a checkpoint of its own. Its process
steps are handed stored state as what Spark calls initial state, and write it in their own way:
with another backend, another number of partitions, without a variable. Steps that are new are
there with empty state. What comes out is a set of state stores that only have to be moved to
where the job goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from holdfast.checkpoint.spark_files import spark_source_name
from holdfast.engine.planner import StepSettings, plan_trunk
from holdfast.engine.readers import Reader
from holdfast.engine.session import STREAMING, configure
from holdfast.job.job import Job
from holdfast.sources.base import BAD_SIDE, Source
from holdfast.storage.files import make_directory, remove_tree

BATCH = 0
"""The batch of the checkpoint that holds the state."""


def plant(job: Job, session: SparkSession, settings: StepSettings, place: Path) -> Path:
    """Returns the checkpoint. All lies under `place`, which is the caller's to remove."""
    remove_tree(place)
    make_directory(place)
    checkpoint = place / "checkpoint"
    trunk = plan_trunk(job, session, settings, place, _NothingToRead)
    configure(session, job, trunk)
    # Whole stores instead of changes: they do not name the version that they belong to.
    incremental = f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled"
    before = session.conf.get(incremental)
    session.conf.set(incremental, "false")
    session.conf.set(f"{STREAMING}.noDataMicroBatches.enabled", "false")
    try:
        query = (
            trunk.frame.writeStream.outputMode(trunk.output_mode)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(_computed)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        session.conf.set(incremental, str(before))
        configure(session, job, trunk)
    return checkpoint


def _computed(frame: DataFrame, epoch: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


class _NothingToRead(Reader):
    """Each source as one file without rows: Spark runs a batch, and nothing is read."""

    def read(self, uid: str, source: Source) -> tuple[DataFrame, dict[str, DataFrame]]:
        sides = {}
        if getattr(source, "on_bad_record", "") == "side":
            sides[BAD_SIDE] = self._nothing(uid, source.bad_schema)
        return self._nothing(uid, source.row_schema), sides

    def ticks(self, uid: str) -> DataFrame:
        return self._nothing(f"{uid}-clock", "timestamp timestamp, value bigint")

    def _nothing(self, uid: str, ddl: str) -> DataFrame:
        folder = self._directory / "nothing" / spark_source_name(uid)
        file = folder / "nothing.parquet"
        if not file.exists():
            make_directory(folder)
            pq.write_table(pa.table({"nothing": pa.array([], pa.null())}), file)
        stream: Any = self._stream(uid, "parquet", None)
        frame: DataFrame = stream.schema(ddl).load(str(folder))
        return frame
