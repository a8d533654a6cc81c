"""The user's own modules, for executors that cannot see the user's folder.

What lies next to the job's file is importable in it, so it must be in the workers too: the
process classes are pickled by name. With a local master the workers share the driver's
PYTHONPATH; executors get a zip. holdfast itself and what the user has installed must be
installed where the executors run.
"""

from __future__ import annotations

import hashlib
import io
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.session import has_executors
from holdfast.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGEST_BYTES = 256 * 1024**2
_EARLIEST = (1980, 1, 1, 0, 0, 0)

logger = logging.getLogger(__name__)


def ship_modules(session: SparkSession, app_folder: Path) -> Path | None:
    """Send the modules and packages in a folder to the executors; None: nothing to do."""
    if not has_executors(session):
        return None
    context = session.sparkContext
    content = zip_modules(app_folder)
    # The name says the content: the same modules are sent once, changed ones under a new name.
    name = f"modules-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    assert context._temp_dir is not None
    # Executors fetch it from there, also those that come late; Spark removes it at the end.
    archive = Path(context._temp_dir) / name
    if not archive.exists():
        archive.write_bytes(content)
        context.addPyFile(str(archive))
        logger.info("modules shipped folder=%s bytes=%d", app_folder, len(content))
    return archive


def zip_modules(folder: Path) -> bytes:
    """The same bytes for the same modules."""
    buffer = io.BytesIO()
    size = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in module_files(folder):
            data = path.read_bytes()
            size += len(data)
            if size > LARGEST_BYTES:
                raise EnvironmentProblem(
                    "MODULES_TOO_LARGE",
                    f"the modules in {folder} are larger than {LARGEST_BYTES // 1024**2} MiB, "
                    "too much to send them to every executor.",
                    fix="keep the job's file in a folder of its own, and data out of packages.",
                    folder=str(folder),
                )
            name = path.relative_to(folder).as_posix()
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def module_files(folder: Path) -> Iterator[Path]:
    """The modules next to the job's file, and all files of the packages there, in order."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py" and path.name != "__init__.py" and path.is_file():
            yield path
        elif (path / "__init__.py").is_file() and not path.name.startswith("."):
            yield from sorted(each for each in path.rglob("*") if _is_content(each, path))


def _is_content(path: Path, package: Path) -> bool:
    names = path.relative_to(package).parts
    return path.is_file() and not any(
        name == "__pycache__" or name.startswith(".") for name in names
    )
