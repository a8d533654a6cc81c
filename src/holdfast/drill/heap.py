"""Uses up the heap of the driver's JVM: called there, at a fault point."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

_BYTES = 32 * 1024**2
"""At a time."""


def use_up() -> None:
    """Raises what the JVM raises when nothing is left."""
    gateway: Any = SparkContext._gateway
    held: list[Any] = []
    try:
        while True:
            held.append(gateway.jvm.java.nio.ByteBuffer.allocate(_BYTES))
    finally:
        held.clear()  # the driver is to say what has happened to it
