"""Takes savepoints for `make versions` under the Spark of this project: `take.py DIR`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]


def main() -> int:
    sys.path.insert(0, str(TESTS))
    os.environ["PYTHONPATH"] = str(TESTS)  # for the Python workers
    from spark.test_golden_savepoints import make

    with tempfile.TemporaryDirectory() as place:
        make(Path(sys.argv[1]), Path(place) / "jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
