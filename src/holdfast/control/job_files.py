"""Which files may be started from afar: those below configured roots, and those that a person
of this machine has started before. There is no way to bring code along."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.registry import JobRow
from holdfast.errors import NotFoundError, UsageError, shorten

MOST_FILES = 1000
_LARGEST_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class JobFile:
    path: Path
    jobs: tuple[str, ...]
    """Names that are written out in it; the file is not run to find out more."""
    registered: bool


def allowed_file(wanted: str, roots: Sequence[Path], known: Iterable[JobRow]) -> Path:
    """The real path of a file that may be started, or a refusal that says nothing about what
    is there otherwise."""
    path = Path(wanted)
    if path.is_absolute() and ".." not in path.parts:
        if path in _registered(known):
            return path
        real = path.resolve()
        if real.suffix == ".py" and any(real.is_relative_to(root.resolve()) for root in roots):
            if real.is_file():
                return real
            raise NotFoundError(
                "APP_NOT_FOUND",
                f"there is no file {shorten(wanted)}.",
                fix="give the path of the job's file on the server's machine.",
            )
    raise UsageError(
        "APP_NOT_ALLOWED",
        f"{shorten(wanted)} may not be started from here: it is neither a Python file below a "
        "configured directory nor one that a registered job was started from.",
        fix="add its directory to the setting server_job_roots, or start it once with "
        "`holdfast run` on the machine itself.",
    )


def startable(roots: Sequence[Path], known: Iterable[JobRow]) -> list[JobFile]:
    """All files that may be started, and declare a job as far as can be seen."""
    registered = _registered(known)
    found = [
        JobFile(path=path, jobs=declared_jobs(path), registered=path in registered)
        for path in sorted({*_below(roots), *(path for path in registered if path.is_file())})
    ]
    return [each for each in found if each.jobs or each.registered]


def _registered(known: Iterable[JobRow]) -> set[Path]:
    return {Path(row.spec["launch"]["app"]) for row in known if (row.spec.get("launch") or {})}


def _below(roots: Sequence[Path]) -> Iterator[Path]:
    number = 0
    for root in roots:
        for path in sorted(root.resolve().rglob("*.py")):
            hidden = any(part.startswith((".", "__")) for part in path.parts[len(root.parts) :])
            if hidden or path.is_symlink() or not path.is_file():
                continue
            number += 1
            if number > MOST_FILES:
                return
            yield path


def declared_jobs(path: Path) -> tuple[str, ...]:
    """What stands as the first argument of `Job(…)`, without running the file."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return ()
        tree = ast.parse(path.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _is_job(node.func):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                names.append(first.value)
    return tuple(dict.fromkeys(names))


def _is_job(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else None
    return name == "Job" or (isinstance(function, ast.Name) and function.id == "Job")
