"""Can jobs use Kafka here? For `holdfast doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from holdfast.config import RuntimeConfig
from holdfast.engine.connectors import (
    CONNECTOR_JAR,
    JARS,
    PACKAGES,
    jar_files,
    not_resolved,
    with_kafka,
)
from holdfast.errors import EnvironmentProblem

_SECONDS = 600.0
_SHOWN = 300


def kafka_client() -> str:
    """The version of confluent-kafka, without importing it."""
    try:
        return metadata.version("confluent-kafka")
    except metadata.PackageNotFoundError as error:
        raise EnvironmentProblem(
            "KAFKA_CLIENT_MISSING",
            f"the Python package confluent-kafka is not installed for {sys.executable}.",
            fix='pip install "holdfast[kafka]"',
        ) from error


def kafka_connector(packages: str, jars: str) -> Callable[[], str]:
    """Jars are looked at; packages can only be tried, by starting Spark with them."""

    def check() -> str:
        if jars:
            found = jar_files(jars)
            if not any(jar.name.startswith(CONNECTOR_JAR) for jar in found):
                raise EnvironmentProblem(
                    "KAFKA_JARS_NOT_FOUND",
                    f"kafka_jars names {len(found)} jars, and none of them is {CONNECTOR_JAR}.",
                    fix="add it, with spark-token-provider-kafka-0-10, kafka-clients and "
                    "commons-pool2.",
                )
            return ", ".join(jar.name for jar in found)
        return _tried(RuntimeConfig(storage=Path.cwd(), kafka_packages=packages))

    return check


def _tried(runtime: RuntimeConfig) -> str:
    conf = {key: with_kafka(runtime).spark.get(key) for key in (PACKAGES, JARS)}
    given = {key: value for key, value in conf.items() if value}
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "holdfast.engine.connector_probe"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        said, failed = ran.stdout + ran.stderr, ran.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = f"nothing within {_SECONDS:g} s", True
    if not failed:
        return f"{runtime.kafka_packages} can be had"
    problem = not_resolved(runtime.kafka_packages, said)
    if problem is not None:
        raise problem
    last = said.strip().splitlines()[-1:] or ["nothing"]
    raise EnvironmentProblem(
        "KAFKA_CONNECTOR_NOT_RESOLVED",
        f"Spark does not start with {runtime.kafka_packages}; it says: {last[0][:_SHOWN]}",
        fix="set kafka_packages to coordinates that fit the installed Spark, or kafka_jars to "
        "a directory of jars.",
    )
