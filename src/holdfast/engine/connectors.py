"""Jars that Spark does not bring along: who needs them, and where they come from.

A JVM gets its jars when it starts, and that is before a pipeline has been run. So it is found
out by looking at the pipeline's code, without running it. Jobs that do not use Kafka get none:
their start must not depend on a repository of jars.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from holdfast.config import RuntimeConfig
from holdfast.errors import EnvironmentProblem
from holdfast.job.job import Job
from holdfast.sinks import Delivery
from holdfast.sinks import Kafka as KafkaSink

JARS, PACKAGES = "spark.jars", "spark.jars.packages"
_KAFKA, _SINKS, _BY_SPARK = "Kafka", "sinks", "at_least_once"
"""What the descriptors of sources and sinks are called, and which sinks Spark writes."""
_BY_NAME = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "IMPORT_NAME", "IMPORT_FROM")
_MOST_OBJECTS = 2000
_NOT_USERS = ("holdfast", "pyspark", "numpy", "pandas", "pyarrow")
CONNECTOR_JAR = "spark-sql-kafka-0-10"


def equipped(runtime: RuntimeConfig, job: Job) -> RuntimeConfig:
    """The runtime with what the job needs besides Spark."""
    return with_kafka(runtime) if uses_kafka(job.declared_pipeline) else runtime


def with_kafka(runtime: RuntimeConfig) -> RuntimeConfig:
    if runtime.kafka_jars:
        key, wanted = JARS, ",".join(str(path) for path in jar_files(runtime.kafka_jars))
    else:
        key, wanted = PACKAGES, runtime.kafka_packages
    own = str(runtime.spark.get(key, ""))
    parts = [part for part in own.split(",") if part]
    parts += [part for part in wanted.split(",") if part and part not in parts]
    return replace(runtime, spark={**runtime.spark, key: ",".join(parts)})


def jar_files(text: str) -> list[Path]:
    """The jars that the setting `kafka_jars` names: files, or all of a directory."""
    found: list[Path] = []
    for each in text.split(","):
        path = Path(each.strip()).expanduser().absolute()
        jars = sorted(path.glob("*.jar")) if path.is_dir() else [path]
        if not jars or not all(jar.is_file() for jar in jars):
            raise EnvironmentProblem(
                "KAFKA_JARS_NOT_FOUND",
                f"the setting kafka_jars names {path}, where there is no jar.",
                fix="name jar files, or a directory of them; or leave it out, and Spark gets "
                "the connector from Maven Central.",
            )
        found += jars
    return found


def not_resolved(packages: str, log: str) -> EnvironmentProblem | None:
    """What Spark says in its log when it cannot get packages."""
    if "unresolved dependency" not in log and "download failed" not in log:
        return None
    return EnvironmentProblem(
        "KAFKA_CONNECTOR_NOT_RESOLVED",
        f"Spark could not get {packages}.",
        fix="check the network and the mirror that Spark uses (spark.jars.ivySettings); or set "
        "kafka_packages to coordinates that it has, or kafka_jars to a directory of jars.",
    )


# -- who needs them ---------------------------------------------------------------------


def uses_kafka(pipeline: Any) -> bool:
    """Whether code that a pipeline can reach names a Kafka source, or a sink that Spark writes.
    Sinks that are exactly once have a client of their own."""
    waiting: list[Any] = [pipeline]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if _is_kafka(found):
            return True
        for each in _reached_from(found):
            if isinstance(each, str):
                if each == _KAFKA:
                    return True
            else:
                waiting.append(each)
    return False


def _is_kafka(found: Any) -> bool:
    if isinstance(found, KafkaSink):
        return found.delivery is not Delivery.TRANSACTIONAL
    kind = found if isinstance(found, type) else type(found)
    return kind.__name__ == _KAFKA and kind.__module__.startswith("holdfast.sources")


def _reached_from(found: Any) -> Iterator[Any]:
    """Names that code uses, and what they stand for."""
    if isinstance(found, MethodType):
        yield found.__func__
        yield type(found.__self__)
    elif isinstance(found, FunctionType):
        if not _is_users(found.__module__):
            return
        names = set(_names(found.__code__))
        for name in names:
            if name in found.__globals__:
                yield found.__globals__[name]
            else:
                yield name
        for cell in found.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not filled yet
                continue
        yield from found.__defaults__ or ()
        yield from vars(found).values()  # what a decorator has wrapped
    elif isinstance(found, type | ModuleType):
        name = found.__name__ if isinstance(found, ModuleType) else found.__module__
        if _is_users(name):
            wanted = FunctionType | type if isinstance(found, ModuleType) else FunctionType
            yield from (each for each in vars(found).values() if isinstance(each, wanted))
            yield from (each for each in vars(found).values() if _is_kafka(each))
    elif _is_users(type(found).__module__):
        yield type(found)  # a pipeline may be an object that can be called
        yield from getattr(found, "__dict__", {}).values()


def _names(code: CodeType) -> Iterator[str]:
    """The names that code uses. `Kafka` is among them only where it needs the connector, or
    where what it stands for has to be looked up."""
    parts = [each.argval for each in dis.get_instructions(code) if each.opname in _BY_NAME]
    for before, name in zip(["", *parts], parts, strict=False):
        of_sinks = name == _KAFKA and before.rpartition(".")[2] == _SINKS
        if not of_sinks or _BY_SPARK in code.co_consts:
            yield name
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _is_users(module: str | None) -> bool:
    if (module or "").startswith("holdfast.demo."):
        return True  # its jobs are written as a user writes them
    first = (module or "").partition(".")[0]
    return first not in _NOT_USERS and first not in sys.stdlib_module_names
