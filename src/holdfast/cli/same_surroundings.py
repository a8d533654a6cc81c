"""Whether a job finds the same in a process of the server as in one of this terminal.

A job that a command starts is to run with the Python and the variables of the terminal. The
server has its own; only if those that matter are the same may it start the job instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast.faults import LOG_VARIABLE

_NAMED = re.compile(
    r"\$\{env:(?P<reference>[^}]+)\}"
    r"|(?:environ(?:\.get\(|\.setdefault\(|\.pop\(|\[)|getenv\()\s*['\"](?P<code>\w+)['\"]"
)
_ANY_OTHER = re.compile(r"\benviron\b(?!\.get\(|\.setdefault\(|\.pop\(|\[)")
_MATTER = re.compile(r"(HOLDFAST|SPARK|PYSPARK|HADOOP|JAVA|JDK|AWS)_.*|PYTHONPATH|VIRTUAL_ENV")
_OF_THE_SERVER = re.compile(r"HOLDFAST_(HOME|SERVER_.*)")


def finds_the_same(python: str, server: int, app: Path) -> bool:
    """`python` and `server`: its interpreter and its process id."""
    try:
        code = app.read_text(encoding="utf-8", errors="replace")
        theirs = _environment_of(server)
    except OSError:  # the file is gone, or the process is somebody else's
        return False
    return python == sys.executable and same_variables(os.environ, theirs, code)


def same_variables(mine: Mapping[str, str], theirs: Mapping[str, str], code: str) -> bool:
    """Those that holdfast and Spark look at, and those that the code names. Pure."""
    if _ANY_OTHER.search(code):
        return False  # nobody knows what it looks at
    named = {found["reference"] or found["code"] for found in _NAMED.finditer(code)}
    ours = {
        name
        for name in {*mine, *theirs}
        if _MATTER.fullmatch(name) and not _OF_THE_SERVER.fullmatch(name)
    }
    return all(mine.get(name) == theirs.get(name) for name in (named | ours) - {LOG_VARIABLE})


def _environment_of(pid: int) -> dict[str, str]:
    """As it was when the process began."""
    entries = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    pairs = (os.fsdecode(each).partition("=") for each in entries if each)
    return {name: value for name, _, value in pairs}
