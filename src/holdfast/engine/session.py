"""The Spark session of a driver process, with the configuration a holdfast job needs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from holdfast.config import CheckpointConfig, RuntimeConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "spark.sql.streaming.stateStore"
STREAMING = "spark.sql.streaming"

# Fixed for the life of the JVM. Loopback only, no UI: a driver offers nothing to the network.
STATIC_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Python workers over unix sockets: the first Python hop of a stage takes 20 instead of
    # 75 ms, and no TCP port is opened for them.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|access[.]?key|"
    "private[.]?key|keystore[.]key|api[.]?key|jaas",
    # Workers are told apart by their environment; with fewer differences, fewer daemons.
    "spark.executor.heartbeatInterval": "30s",
    "spark.network.timeout": "300s",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.legacy.setCommandRejectsSparkCoreConfs": "false",
}

# Per query; SPARK-FACTS: the state format with checksums and unique ids, named sources,
# a log format that knows their names, and a file manager that is safe under our lease.
QUERY_CONF = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    f"{_STATE}.checkpointFormatVersion": "2",
    f"{_STATE}.encodingFormat": "avro",
    f"{STREAMING}.queryEvolution.enableSourceEvolution": "true",
    f"{STREAMING}.offsetLog.formatVersion": "2",
    f"{STREAMING}.stopTimeout": "60s",
    f"{STREAMING}.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
    f"{STREAMING}.numRecentProgressUpdates": "10",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.adaptive.enabled": "false",
}


# Spark's own in-memory store: no checksums, and nothing but its own operators can use it.
_IN_MEMORY = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "HDFSBackedStateStoreProvider",
    f"{_STATE}.checkpointFormatVersion": "1",
    f"{_STATE}.encodingFormat": "unsaferow",
}


def driver_session(runtime: RuntimeConfig) -> SparkSession:
    """The one session of this process; started at the first call."""
    # Workers take the first python3 on PATH otherwise, which is rarely the right one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(runtime.master).appName("holdfast")
    conf = {
        "spark.driver.memory": runtime.driver_memory,
        "spark.log.level": runtime.log_level,
        **STATIC_CONF,
        **{key: str(value) for key, value in runtime.spark.items()},
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def allow_unnamed_sources(session: SparkSession) -> None:
    """Spark refuses names for a source that a plan reads twice; then none may have one."""
    session.conf.set(f"{STREAMING}.queryEvolution.enableSourceEvolution", "false")
    session.conf.set(f"{STREAMING}.offsetLog.formatVersion", "1")


def query_session(
    session: SparkSession, checkpoint: CheckpointConfig, partitions: int, runtime: RuntimeConfig
) -> SparkSession:
    """A session of its own for one query, so that jobs in one process do not share settings."""
    query = session.newSession()
    conf = {
        **QUERY_CONF,
        **(_IN_MEMORY if checkpoint.backend == "memory" else {}),
        f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
        f"{_STATE}.rocksdb.maxMemoryUsageMB": str(
            max(1, runtime.rocksdb_memory_bytes // 1024**2)
        ),
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": str(checkpoint.incremental).lower(),
        f"{STREAMING}.minBatchesToRetain": str(checkpoint.retained),
        "spark.sql.shuffle.partitions": str(partitions),
        **{
            key: str(value)
            for key, value in runtime.spark.items()
            if key.startswith("spark.sql.")
        },
    }
    for key, value in conf.items():
        query.conf.set(key, value)
    return query
