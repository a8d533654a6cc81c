"""PySpark's daemon of Python workers, with their imports done before it forks them.

PySpark's own daemon forks first, and every worker then imports the same modules again.
"""

from __future__ import annotations

import gc

import pyspark.daemon
import pyspark.worker

import holdfast.engine.worker  # noqa: F401

if __name__ == "__main__":
    # Workers share the memory of what is here as long as nobody, the collector included,
    # writes to it.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
