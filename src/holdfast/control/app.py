"""The user's file: importing it, and finding its job."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from holdfast.errors import HoldfastError, NotFoundError, UsageError, UserCodeError
from holdfast.job.job import Job
from holdfast.state.trouble import user_frame


def load_job(app: Path, job_name: str | None) -> Job:
    """Import the user's file and find its job."""
    if not app.is_file():
        raise NotFoundError(
            "APP_NOT_FOUND", f"there is no file {app}.", fix="give the path of the job's file."
        )
    module = _import_file(app.absolute())
    jobs = {value.name: value for value in vars(module).values() if isinstance(value, Job)}
    if job_name is not None:
        if job_name not in jobs:
            raise NotFoundError(
                "JOB_NOT_IN_FILE",
                f"{app} has no job {job_name!r}.",
                fix=f"it has: {', '.join(jobs) or 'none'}.",
            )
        return jobs[job_name]
    if len(jobs) != 1:
        found = ", ".join(jobs) or "none"
        raise UsageError(
            "JOB_UNCLEAR",
            f"{app} must hold one Job, or --job must name one; found: {found}.",
            fix='write `job = hf.Job("name")` at the top level of the file.'
            if not jobs
            else "say which: --job NAME.",
        )
    return next(iter(jobs.values()))


def code_version(folder: Path | None) -> str:
    """A name for the code as it is now: its own file and what it has imported from beside it.

    Equal code has equal names, wherever it lies. Empty for a job that has no folder.
    """
    if folder is None:
        return ""
    files = {
        path.relative_to(folder): path
        for module in tuple(sys.modules.values())
        if (path := Path(getattr(module, "__file__", None) or "")).is_relative_to(folder)
    }
    found = hashlib.sha256()
    for name, path in sorted(files.items()):
        # What is installed in an environment that lies there is not the job's code.
        if path.is_file() and "site-packages" not in name.parts:
            content = path.read_bytes()
            found.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:12]


def _import_file(app: Path) -> ModuleType:
    # The file's directory comes first, so that the job's own modules are found, here and,
    # through PYTHONPATH, in the Python workers.
    folder = str(app.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    spec = importlib.util.spec_from_file_location(app.stem, app)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[app.stem] = module
    try:
        spec.loader.exec_module(module)
    except HoldfastError:
        raise
    except Exception as error:
        place = user_frame(error)
        raise UserCodeError(
            "APP_FAILED_TO_LOAD",
            f"{type(error).__name__}: {error}" + (f" at {place}." if place else "."),
            fix="correct the file; `python FILE` shows the whole traceback.",
            place=place,
        ) from error
    return module
