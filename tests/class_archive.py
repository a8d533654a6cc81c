"""Writes the archive of Spark's classes that the JVMs of all tests share; `make test` calls it.

holdfast makes such an archive for each home directory, when a job has been well for a minute.
Nearly every test has a home of its own, and its job does not live that long.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from holdfast.config import RuntimeConfig
from holdfast.engine.training import make_class_archive


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_class_archive(RuntimeConfig(storage=Path(folder), log_level="OFF"), archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
