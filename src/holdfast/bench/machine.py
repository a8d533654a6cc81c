"""What a figure depends on: the machine, how busy it is, and the versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast.control.java import find_java
from holdfast.errors import EnvironmentProblem

_PACKAGES = ("holdfast", "pyspark", "pyarrow", "pandas")


def describe() -> dict[str, Any]:
    """The machine as it is now."""
    return {
        "time": datetime.now(UTC),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_available_bytes": _available_memory(),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {
            "python": platform.python_version(),
            "java": _java(),
            **{name: metadata.version(name) for name in _PACKAGES},
        },
    }


def _java() -> str:
    try:
        return find_java().version
    except EnvironmentProblem as error:
        return error.name


def _available_memory() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _lines(path: str) -> list[str]:
    """Of a file that only Linux has."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
