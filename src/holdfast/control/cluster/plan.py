"""What is started and with which configuration: pure, so that it can be read and tested.

Everything listens on loopback. Whoever connects must know the cluster's secret, which is in a
file and never in a command line, where every user of the machine could read it. Spark's web
pages cannot be switched off for a Master and a Worker; they ask for a signed token (Spark's own
JWSFilter) whose key is in the same file.
"""

from __future__ import annotations

import os
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.cluster.place import ClusterPlace
from holdfast.control.cluster.processes import MARK_VARIABLE
from holdfast.errors import UsageError
from holdfast.types import parse_size

LOOPBACK = "127.0.0.1"
DEFAULTS_FILE = "spark-defaults.conf"
LOG_FILE = "log4j2.properties"
WEB_KEY = "spark.org.apache.spark.ui.JWSFilter.param.secretKey"

# A Master and a Worker do little: they should start fast and leave the cores to the job.
_DAEMON_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SCALA = "2.13"  # of every PySpark 4 wheel
_SMALLEST_EXECUTOR = 512 * 1024**2  # Spark refuses less than 450 MiB
_JVM_MEMORY = re.compile(r"^[1-9]\d*[mg]$")
# Of the terminal that happens to start the cluster, nothing may decide what executors run.
_NOT_INHERITED = re.compile(r"^_?(SPARK|PYSPARK|HOLDFAST)_|^PYTHON(PATH|HOME|STARTUP)$")


@dataclass(frozen=True, kw_only=True)
class ClusterSize:
    """Of each worker; a job gets one executor per worker, as large as it."""

    cores: int = 1
    memory: str = "1g"

    def __post_init__(self) -> None:
        small = not _JVM_MEMORY.match(self.memory) or (
            parse_size(self.memory) < _SMALLEST_EXECUTOR
        )
        if small or self.cores < 1:
            raise UsageError(
                "INVALID_CLUSTER_SIZE",
                f"a worker with {self.cores} cores and {self.memory!r} of memory cannot run "
                "an executor.",
                fix="give at least 1 core, and memory such as 512m, 1g or 4g.",
            )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A JVM that is to be started."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """How to start the members of a cluster."""

    java: Path
    spark_home: Path
    place: ClusterPlace
    size: ClusterSize
    inherited: Mapping[str, str]

    def master(self, mark: str, *, port: int, web_port: int) -> Launch:
        return self._launch(
            "master",
            mark,
            "org.apache.spark.deploy.master.Master",
            *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(web_port)),
        )

    def worker(self, name: str, mark: str, *, port: int, master_url: str) -> Launch:
        return self._launch(
            name,
            mark,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", LOOPBACK, "--port", str(port), "--webui-port", "0"),
            *("--cores", str(self.size.cores), "--memory", self.size.memory),
            *("--work-dir", str(self.place.work(name)), master_url),
        )

    def _launch(self, name: str, mark: str, main_class: str, *arguments: str) -> Launch:
        class_path = os.pathsep.join(
            (str(self.place.conf), str(self.spark_home / "jars" / "*"))
        )
        return Launch(
            name=name,
            command=(
                *(str(self.java), *_DAEMON_OPTIONS, "-cp", class_path),
                *(main_class, *arguments),
            ),
            environment=self._environment(name, mark),
            log=self.place.log(name),
        )

    def _environment(self, name: str, mark: str) -> dict[str, str]:
        kept = {k: v for k, v in self.inherited.items() if not _NOT_INHERITED.search(k)}
        return kept | {
            "SPARK_HOME": str(self.spark_home),
            "SPARK_CONF_DIR": str(self.place.conf),
            # Spark's start scripts would set it; a Worker needs it to start executors.
            "SPARK_SCALA_VERSION": _SCALA,
            # The web pages listen here, and executors inherit it.
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.place.scratch(name)),
            MARK_VARIABLE: mark,
        }


def conf_files(size: ClusterSize) -> dict[str, str]:
    """The files of Spark's configuration directory, with fresh secrets."""
    return {
        DEFAULTS_FILE: "".join(f"{key} {value}\n" for key, value in _defaults(size).items()),
        LOG_FILE: _LOGGING,
    }


def _defaults(size: ClusterSize) -> dict[str, str]:
    """For Master, workers and drivers; a driver's own settings win."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.master.ui.decommission.allow.mode": "DENY",
        "spark.ui.filters": "org.apache.spark.ui.JWSFilter",
        WEB_KEY: urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "spark.executor.memory": size.memory,
        # Of executors that ended; the newest week is kept.
        "spark.worker.cleanup.enabled": "true",
    }


def conf_value(text: str, key: str) -> str:
    """A value of a file that `conf_files` made."""
    return dict(line.split(" ", 1) for line in text.splitlines())[key]


# The state server warns of every key that has no value yet, as every new key has none.
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.master.name = org.apache.spark.deploy.master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker
logger.worker.level = info
logger.stateserver.name = \
org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer
logger.stateserver.level = error
"""
