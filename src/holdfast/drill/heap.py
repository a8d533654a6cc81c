"""Uses up the heap of the driver's JVM: called there, at a fault point."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

_NUMBERS = 4 * 1024**2
"""Of 8 bytes, at a time."""


def use_up() -> None:
    """Raises what the JVM raises when nothing is left."""
    gateway: Any = SparkContext._gateway
    held: list[Any] = []
    try:
        while True:
            held.append(gateway.new_array(gateway.jvm.long, _NUMBERS))
    finally:
        held.clear()  # the driver is to say what has happened to it
