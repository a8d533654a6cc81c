"""The state of process steps in a checkpoint or savepoint, as frames with a row per key."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.engine.planner import InitialState
from holdfast.engine.stores import ENTRIES
from holdfast.engine.worker import BROADCAST_TAG, WIRE_DDL, packer, state_reader
from holdfast.state.canonical import StoredStep
from holdfast.state.entries import BROADCAST, HEAD
from holdfast.state.key_groups import spark_label
from holdfast.state.schema import columns_ddl


def key_rows(
    session: SparkSession,
    checkpoint: Path,
    batch: int,
    position: int,
    step: StoredStep,
    *,
    group: int | None = None,
) -> DataFrame:
    """What a step had stored after a batch; of one key group, or of all."""
    entries = _entries(session, checkpoint, batch, position)
    if group is not None:
        entries = entries.where(f.col("kg") == spark_label(group))
    # A partition of the state holds whole key groups, in any order.
    return entries.sortWithinPartitions("kg").mapInArrow(
        state_reader(step), columns_ddl(step.schema)
    )


def broadcast_state(
    session: SparkSession, checkpoint: Path, batch: int, position: int
) -> bytes | None:
    """The broadcast state of a step: every key group has the same."""
    entries = _entries(session, checkpoint, batch, position)
    found = entries.where(f.col("k") == f.lit(BROADCAST)).select("v").first()
    return None if found is None else bytes(found[0])


def live_keys(
    session: SparkSession, checkpoint: Path, batch: int, position: int, step: StoredStep
) -> int:
    """How many keys a step has, by what its key groups say themselves."""
    entries = _entries(session, checkpoint, batch, position)
    heads = entries.where(f.col("k") == f.lit(HEAD)).select("v").collect()
    return sum(step.live_keys({HEAD: bytes(row[0])}) for row in heads)


def _entries(session: SparkSession, checkpoint: Path, batch: int, position: int) -> DataFrame:
    stored = (
        session.read.format("statestore")
        .option("operatorId", position)
        .option("batchId", batch)
        .option("stateVarName", ENTRIES)
        .load(str(checkpoint))
    )
    return stored.selectExpr("key.kg kg", "user_map_key.k k", "user_map_value.v v")


def initial_state(
    session: SparkSession,
    step: StoredStep,
    rows: DataFrame,
    broadcast: bytes | None,
    key_groups: int,
) -> InitialState:
    """Rows of stored keys, packed as a step takes them in."""
    schema = step.layout.schema.remove_metadata()
    keys = tuple(schema.names[: len(step.keys)])
    blocks = rows.toDF(*schema.names).mapInArrow(packer(keys, schema, key_groups), WIRE_DDL)
    if broadcast is not None:
        known = [(spark_label(group), 0, BROADCAST_TAG) for group in range(key_groups)]
        everywhere = session.createDataFrame(known, "kg int, place bigint, tag string")
        blocks = blocks.union(everywhere.withColumn("block", f.lit(broadcast)))
    return InitialState(blocks, schema)
