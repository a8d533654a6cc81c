"""Whether the JVM is there: a question that it answers at once, unless it stands still."""

from __future__ import annotations

import subprocess
from typing import Any

from pyspark import SparkContext

_ENDING_SECONDS = 1.0


def await_answer() -> None:
    """Returns when the JVM has answered; at once if there is none yet."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.jvm.java.lang.System.nanoTime()


def jvm_is_alive() -> bool:
    """False if its process has ended. One that has just been killed may take a moment to."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return True
    try:
        gateway.proc.wait(timeout=_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False
