"""How much memory RocksDB has taken, asked from inside the driver of a local master.

What `rocksdb_memory` bounds is one block cache for all instances of the JVM: data blocks,
indexes and filters lie in it, and write buffers are charged to it. So the cache itself is
asked. Spark's own figure, `memoryUsedBytes` of its progress, is of no use here: it adds the
write buffers to the cache once more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENT = "rocksdb"
_SAMPLE_SECONDS = 0.25
_MEMORY_MANAGER = "org.apache.spark.sql.execution.streaming.state.RocksDBMemoryManager$"


def watch(session: SparkSession) -> None:
    """Report every new peak as an event, until the process ends. A second call does nothing."""
    if not any(isinstance(thread, _Watch) for thread in threading.enumerate()):
        _Watch(session).start()


class _Watch(threading.Thread):
    def __init__(self, session: SparkSession) -> None:
        super().__init__(daemon=True)
        self._jvm: Any = session._jvm

    def run(self) -> None:
        from py4j.protocol import Py4JError

        peak = 0
        try:
            while True:
                used = self._used()
                if used > peak:
                    peak = used
                    _emit({"event": EVENT, "bytes": peak})
                time.sleep(_SAMPLE_SECONDS)
        except (Py4JError, OSError):
            return  # the JVM has ended

    def _used(self) -> int:
        # The field is private, and the method that returns it would create it.
        field = self._jvm.java.lang.Class.forName(_MEMORY_MANAGER).getDeclaredField("cache")
        field.setAccessible(True)
        cache = field.get(None)
        return 0 if cache is None else int(cache.getUsage())


def _emit(event: dict[str, Any]) -> None:
    # Past Python's buffer: its lock must not be held by this thread when the process ends.
    os.write(1, f"{json.dumps(event)}\n".encode())
