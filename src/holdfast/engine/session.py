"""The Spark session of a driver process, with the configuration a holdfast job needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config import CheckpointConfig, RuntimeConfig
from holdfast.engine.jvm import KnownJvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.engine.trunk import Trunk
    from holdfast.job.job import Job

_STATE = "spark.sql.streaming.stateStore"
STREAMING = "spark.sql.streaming"

# Ten times what Java takes otherwise. Its optimising compiler is busy during a whole start,
# with methods that are not used afterwards. What a stream does again and again is called so
# often that it is compiled all the same, a few epochs later.
_OPTIMISE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

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
    # Spark has a daemon for each environment of workers. Those of process steps would be told
    # apart from the others by this one, and only by this.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.driver.defaultJavaOptions": _OPTIMISE_LATER,
    "spark.python.daemon.module": "holdfast.engine.daemon",
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


def begin_jvm(runtime: RuntimeConfig, log: Path) -> KnownJvm | None:
    """Start the JVM ahead of :func:`driver_session`, if it is known how to; returns at once."""
    if runtime.cache is None or not runtime.master.startswith("local"):
        return None  # executors of a cluster are started with the driver's SPARK_HOME
    _set_environment(runtime)
    known = KnownJvm(Path(runtime.cache), _driver_conf(runtime))
    known.start(log)
    return known


def driver_session(runtime: RuntimeConfig, known: KnownJvm | None = None) -> SparkSession:
    """The one session of this process; started at the first call."""
    _set_environment(runtime)
    started = known is not None and known.connect()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in _driver_conf(runtime).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if known is not None and not started:
        gateway: Any = session.sparkContext._gateway
        known.learn(gateway.proc.pid)
    return session


def _set_environment(runtime: RuntimeConfig) -> None:
    # Workers take the first python3 on PATH otherwise, which is rarely the right one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if runtime.conf_dir is not None:
        # A cluster's secret is in a file there; as a setting it would be in the command line
        # of the JVM, for all to see.
        os.environ["SPARK_CONF_DIR"] = runtime.conf_dir


def _driver_conf(runtime: RuntimeConfig) -> dict[str, str]:
    return {
        "spark.master": runtime.master,
        "spark.app.name": "holdfast",
        "spark.driver.memory": runtime.driver_memory,
        "spark.log.level": runtime.log_level,
        **STATIC_CONF,
        **{key: str(value) for key, value in runtime.spark.items()},
    }


def has_executors(session: SparkSession) -> bool:
    """Whether tasks run in processes of their own; with a local master the driver runs them."""
    return not str(session.sparkContext.master).startswith("local")


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


def configure(session: SparkSession, job: Job, trunk: Trunk) -> None:
    """What of a query's settings depends on its plan."""
    conf = session.conf
    if trunk.native:
        # Spark's own operators cannot keep their state as Avro.
        conf.set(f"{_STATE}.encodingFormat", "unsaferow")
    conf.set(f"{STREAMING}.useStreamlineAggregator", str(trunk.rolling).lower())
    conf.set(f"{STREAMING}.multipleWatermarkPolicy", job.watermark_policy)
    conf.set(f"{STREAMING}.noDataMicroBatches.enabled", str(trunk.moves_without_data).lower())
