"""State as plain columns: from the files of a checkpoint to Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.checkpoint.identity import JobIdentity
from holdfast.config import CheckpointConfig, RuntimeConfig
from holdfast.engine.driver import start_session
from holdfast.engine.session import query_session
from holdfast.engine.stored_state import broadcast_state, key_rows
from holdfast.savepoint.canonical import CanonicalState
from holdfast.state.canonical import StoredStep

_SIDES = ("left", "right")


@contextmanager
def reading_session(
    runtime: RuntimeConfig, identity: JobIdentity, log: Path
) -> Iterator[SparkSession]:
    """A session that reads what a job of this identity has stored."""
    spark = start_session(runtime, log)
    checkpoint = CheckpointConfig(backend=identity.backend)  # type: ignore[arg-type]
    yield query_session(spark, checkpoint, identity.parallelism, runtime)


def export_state(
    session: SparkSession,
    checkpoint: Path,
    batch: int,
    identity: JobIdentity,
    target: CanonicalState,
    *,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the state of all steps. `checkpoint` must lie where its files say that it does."""
    for done, (uid, signature) in enumerate(identity.operators.items()):
        told(done, len(identity.operators))
        position = signature["position"]
        if signature["kind"] == "process":
            step = StoredStep.of(uid, signature, identity.backend)
            rows = key_rows(session, checkpoint, batch, position, step)
            _write(rows, target.rows(uid))
            broadcast = broadcast_state(session, checkpoint, batch, position)
            if broadcast is not None:
                target.save_broadcast(uid, broadcast)
        else:
            for name, rows in _native_rows(session, checkpoint, batch, position).items():
                _write(rows, target.native(uid) / name)
    told(len(identity.operators), len(identity.operators))


def _native_rows(
    session: SparkSession, checkpoint: Path, batch: int, position: int
) -> dict[str, DataFrame]:
    """What Spark's own reader shows; a join has two sides."""
    reader = (
        session.read.format("statestore")
        .option("operatorId", position)
        .option("batchId", batch)
    )
    metadata = session.read.format("state-metadata").load(str(checkpoint))
    [name] = {row.operatorName for row in metadata.collect() if row.operatorId == position}
    if name == "symmetricHashJoin":
        return {side: reader.option("joinSide", side).load(str(checkpoint)) for side in _SIDES}
    return {"rows": reader.load(str(checkpoint))}


def _write(rows: DataFrame, target: Path) -> None:
    rows.write.parquet(str(target))
    # Spark's own notes about the writing; the manifest has better ones.
    for extra in [*target.glob(".*.crc"), *target.glob("_SUCCESS")]:
        extra.unlink()
