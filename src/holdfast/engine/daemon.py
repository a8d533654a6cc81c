"""PySpark's daemon of Python workers, with their imports done before it forks them.

PySpark's own daemon forks first, and every worker then imports the same modules again.
"""

from __future__ import annotations

import gc

from holdfast.engine.allocation import keep_freed_memory

keep_freed_memory()  # before Arrow comes with the other imports

import pyspark.daemon  # noqa: E402
import pyspark.worker  # noqa: E402

import holdfast.engine.worker  # noqa: E402, F401

if __name__ == "__main__":
    # Workers share the memory of what is here as long as nobody, the collector included,
    # writes to it.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
