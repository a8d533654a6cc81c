"""Restores savepoints that were taken under Spark 4.3 under another PySpark: `restore.py DIR`.

Those in DIR were taken just now (take.py), the golden ones once and for all. `make versions`
runs this in an environment of its own. holdfast itself asks for the Spark that
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
    from spark.test_golden_savepoints import GOLDEN, NAMES, loads

    for kind, folder in (("golden", GOLDEN), ("taken now", Path(sys.argv[1]))):
        for name in NAMES:
            with tempfile.TemporaryDirectory() as place:
                loads(Path(place), name, folder)
            sys.stdout.write(
                f"{name}, {kind}: of Spark 4.3, exact under {pyspark.__version__}\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
