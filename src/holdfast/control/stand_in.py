"""Stands in for Spark while a pipeline is only looked at.

Pipelines make Columns (`F.sum("diff")`), and PySpark asks the JVM for each of them. Here it
asks an object that says yes to everything, so no JVM is started, and none is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Anything:
    """Takes any attribute, call, operator and index, and gives more of the same."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for: copying, pickling, hashing
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Anything()

    def __getitem__(self, _: Any) -> Any:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, _: object) -> bool:
        return True

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __hash__(self) -> int:
        return id(self)


def _operator(self: Anything, *_: Any) -> Any:
    return Anything()


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "mod",
    "rmod",
    "pow",
    "rpow",
    "and",
    "rand",
    "or",
    "ror",
    "xor",
    "rxor",
    "neg",
    "invert",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]:
    setattr(Anything, f"__{_name}__", _operator)


class _Context(Anything):
    """In place of the SparkContext."""

    def __init__(self) -> None:
        self._conf: dict[str, str] = {}  # PySpark compares its values with words

    def _parse_ddl(self, _: str) -> Any:
        # The type of a UDF's result, which PySpark checks. Which one it is plays no role here.
        return sys.modules["pyspark.sql.types"].StringType()


def pyspark_loaded() -> bool:
    return "pyspark" in sys.modules


@contextmanager
def without_spark() -> Iterator[None]:
    """Inside, PySpark's functions make Columns without a JVM.

    PySpark is not imported for it: code that did not import it makes no Columns. A session that
    is there already is left in place.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    sessions = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
    if context is None or sessions is None or context._active_spark_context is not None:
        yield
        return
    context._active_spark_context = _Context()
    try:
        yield
    finally:
        # A UDF makes a session of what it finds, and PySpark would keep it.
        context._active_spark_context = None
        sessions._instantiatedSession = sessions._activeSession = None


def column(name: str) -> Any:
    """What `frame.name` or `frame["name"]` is: PySpark's functions take real Columns only."""
    functions = sys.modules.get("pyspark.sql.functions")
    return Anything() if functions is None else functions.col(name)


def is_frame_method(name: str) -> bool:
    """Whether DataFrames have it. Without PySpark every name may be one."""
    frames = getattr(sys.modules.get("pyspark.sql"), "DataFrame", None)
    return frames is None or hasattr(frames, name)
