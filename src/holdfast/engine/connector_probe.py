"""Starts Spark with its Kafka connector, and says whether that works. A program of its own.

Its standard input is the packages or jars, as `spark.…` settings in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.config import RuntimeConfig
from holdfast.engine.session import driver_session


def main() -> None:
    conf = json.load(sys.stdin)
    runtime = RuntimeConfig(
        storage=Path.cwd(),
        master="local[1]",
        driver_memory="512m",
        log_level="ERROR",
        spark=conf,
    )
    stream = driver_session(runtime).readStream.format("kafka")
    # Nothing is read: the connector itself must be there to say what columns there would be.
    stream.option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "any").load()


if __name__ == "__main__":
    main()
