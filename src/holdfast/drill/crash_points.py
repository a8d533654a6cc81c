"""Faults inside the JVM, at the file operations that a commit consists of."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import EnvironmentProblem

_SOURCE = Path(__file__).with_name("crash_points.c")
At = Literal["before open", "before rename", "after rename"]
DiskError = Literal["eio", "enospc"]
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """The `nth` call whose path fits `pattern`, and what happens there; once per job."""

    at: At
    pattern: str
    """As in a shell; no blanks."""
    action: Literal["kill", "gate"] | DiskError
    nth: int = 1

    @property
    def point(self) -> str:
        """What the log of fired faults calls it."""
        return f"{self.at} {self.pattern}"

    def variables(self, library: Path, gate: Path) -> dict[str, str]:
        """For the environment of `holdfast run`; the log of faults has to be there, too."""
        return {
            "LD_PRELOAD": str(library),
            "CRASH_GATE": str(gate),
            "CRASH_POINT": f"{self.at} {self.nth} {self.action} {self.pattern}",
        }


def build_library(folder: Path) -> Path:
    """Compile the library that carries crash points out."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise EnvironmentProblem(
            "NO_C_COMPILER",
            "faults inside the JVM need a C compiler, and there is none "
            f"({', '.join(_COMPILERS)}).",
            fix="install one (Debian and Ubuntu: apt install gcc libc6-dev).",
        )
    library = folder / "crash_points.so"
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise EnvironmentProblem(
            "CRASH_POINTS_NOT_BUILT",
            f"{compiler} could not compile {_SOURCE.name}: {done.stderr.strip()[:2000]}",
            fix="install the headers of the C library (Debian and Ubuntu: apt install "
            "libc6-dev); this needs Linux.",
        )
    return library
