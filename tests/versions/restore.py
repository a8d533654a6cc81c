"""Restores the golden savepoints, which were taken under Spark 4.3, under another PySpark.

`make versions` runs this in an environment of its own. holdfast itself asks for the Spark that
it is tested with, and refuses others; here that bound is lifted for the sake of the question.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]


def main() -> int:
    sys.path.insert(0, str(TESTS))
    os.environ["PYTHONPATH"] = str(TESTS)  # for the Python workers
    import pyspark

    from holdfast.control import doctor

    known: tuple[doctor.Package, ...] = doctor.PACKAGES
    vars(doctor)["PACKAGES"] = tuple(each for each in known if each.name != "pyspark")
    from spark.test_golden_savepoints import test_golden_savepoints_load

    for name in ("canonical", "heap", "rocksdb"):
        with tempfile.TemporaryDirectory() as place:
            test_golden_savepoints_load(Path(place), name)
        sys.stdout.write(f"{name}: taken under Spark 4.3, exact under {pyspark.__version__}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
