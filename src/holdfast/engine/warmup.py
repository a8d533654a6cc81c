"""Python workers that are started ahead of time.

The first stage that runs Python waits until Spark has started a daemon, which waits for the
interpreter and its imports. That takes seconds, and it need not wait for the first epoch: it
can go on while the job is being planned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

_PATIENCE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class PythonWorkers:
    """`count` workers that are on their way; made at once, ready soon."""

    def __init__(self, session: SparkSession, count: int) -> None:
        self._thread: threading.Thread | None = None
        if count:
            self._thread = threading.Thread(target=_run, args=(session, count), daemon=True)
            self._thread.start()

    def wait(self) -> float:
        """Until they are ready, or late; how many seconds that took.

        The first epoch needs these workers and the cores that they start on, so it loses
        nothing by waiting, and it is known then what it waited for.
        """
        began = time.monotonic()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
        return time.monotonic() - began


def _run(session: SparkSession, count: int) -> None:
    try:
        rows = session.range(0, count, 1, count).mapInArrow(_unchanged, "id bigint")
        rows.write.format("noop").mode("overwrite").save()
    except Exception as error:  # what is wrong will show, with its name, in the first epoch
        logger.debug("python workers not started ahead reason=%r", error)


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow. The worker imports holdfast's own worker module on the way."""
    import holdfast.engine.worker  # noqa: F401

    yield from batches
