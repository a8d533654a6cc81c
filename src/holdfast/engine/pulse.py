"""Whether the JVM is there: a question that it answers at once, unless it stands still."""

from __future__ import annotations

from pyspark import SparkContext


def await_answer() -> None:
    """Returns when the JVM has answered; at once if there is none yet."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.jvm.java.lang.System.nanoTime()
