"""Python workers that are started ahead of time.

The first stage that runs Python waits until Spark has started a daemon, which waits for the
interpreter and its imports. That takes seconds, and it need not wait for the first epoch: it
can go on while the job is being planned.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def start_python_workers(session: SparkSession, count: int) -> None:
    """Have `count` workers for packing ready soon; returns at once."""
    threading.Thread(target=_run, args=(session, count), daemon=True).start()


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
