"""Starts Spark's JVM as an earlier start did, which saves seconds of every restart.

`spark-submit` is a shell script that starts one JVM to find out how to start another. With the
same settings it always finds the same, so the command is kept and run directly the next time:

- There is no second JVM, and no shell. The start need not wait until pyspark is imported.
- Without SPARK_HOME in its environment, the JVM lets Python workers import the PySpark that is
  installed, instead of one in a zip, which has no byte code and is compiled by every process.
- Classes come from an archive (:mod:`holdfast.engine.training`), if there is one.

Where anything is unusual, or does not work, PySpark starts the JVM in its own way.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.storage.files import make_directory, read_json, size_of, write_json

FORMAT_VERSION = 1
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_UNUSUAL = ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
_VARIABLES = ("SPARK_", "PYSPARK_", "JAVA_", "JDK_", "_JAVA_", "HADOOP_", "YARN_")
"""Beginnings of variables that decide how the JVM is started."""
_SHELL = "pyspark-shell"
"""What Spark calls a JVM that waits for Python."""
_POLL_SECONDS = 0.01
_START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The Spark and the Java that will be used; what is known of one is not true of another."""

    spark: Path
    java: Path

    @classmethod
    def found(cls) -> Installation | None:
        """None where only Spark's own scripts know how to start it."""
        spark = _spark_folder()
        home = os.environ.get("JAVA_HOME")
        java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
        if sys.platform != "linux" or not java.is_file() or spark is None:
            return None
        here = cls(spark=spark, java=java.resolve())
        conf_dir = Path(os.environ.get("SPARK_CONF_DIR", here.spark / "conf"))
        unusual = conf_dir.is_dir() or any(name in os.environ for name in _UNUSUAL)
        return None if unusual else here

    def name(self, *facts: Any) -> str:
        """The same for the same files and facts."""
        paths = (self.java, self.spark / "jars", self.spark / "version.py")
        files = [(str(path), path.stat().st_mtime_ns) for path in paths]
        content = json.dumps([FORMAT_VERSION, files, facts])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def _spark_folder() -> Path | None:
    """Found without importing it: the JVM is to be on its way before that."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec and spec.origin else None


def class_archive(cache: Path) -> Path | None:
    """Where the archive of Spark's classes is, or would be."""
    here = Installation.found()
    return None if here is None else cache / f"classes-{here.name()}.jsa"


class KnownJvm:
    """How a JVM with certain settings is started, once Spark's scripts have done it."""

    def __init__(self, cache: Path, conf: Mapping[str, str]) -> None:
        # All before pyspark is imported: it changes the environment.
        here = Installation.found()
        variables = [item for item in os.environ.items() if item[0].startswith(_VARIABLES)]
        self._conf = conf
        self._coming: tuple[subprocess.Popen[bytes], Path] | None = None
        """A JVM that has been started, and where it will say how to reach it."""
        self._archive = class_archive(cache)
        self._file = (
            cache / f"launch-{here.name(sorted(variables), sorted(conf.items()))}.json"
            if here
            else None
        )

    def start(self, log: Path) -> None:
        """Does nothing if it is not known how; returns at once."""
        if self._file is None or size_of(self._file) is None:
            return
        try:
            java, *options = read_json(self._file)["command"]
        except (HoldfastError, KeyError, TypeError, ValueError):
            return
        told = Path(tempfile.mkdtemp(prefix="holdfast-jvm-"), "connection")
        variables = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
        settings = (part for item in self._conf.items() for part in ("--conf", "=".join(item)))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [java, *self._archive_options(), *options, _MAIN_CLASS, *settings, _SHELL],
                # The JVM ends when its standard input does, and that ends with us.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | variables,
                process_group=0,  # Ctrl-C is not for the JVM
            )
        self._coming = process, told

    def connect(self) -> bool:
        """Wait for the JVM and have PySpark use it; False: there is none."""
        if self._coming is None:
            return False
        process, told = self._coming
        try:
            connection = _await_connection(process, told)
        finally:
            shutil.rmtree(told.parent, ignore_errors=True)
        if connection is None:
            process.kill()
            process.communicate()
            self._forget()
            return False
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway

        names = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
        os.environ.update(zip(names, connection, strict=True))
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in names:
                del os.environ[name]
        gateway.proc = process
        SparkContext._ensure_initialized(gateway=gateway)
        return True

    def learn(self, pid: int) -> None:
        """Keep how the JVM with this process id was started."""
        if self._file is None:
            return
        with suppress(OSError, ValueError, HoldfastError):  # then the next start will
            line = Path("/proc", str(pid), "cmdline").read_text(encoding="utf-8")
            arguments = line.split("\0")
            command = arguments[: arguments.index(_MAIN_CLASS)]
            make_directory(self._file.parent)
            write_json(self._file, {"format": FORMAT_VERSION, "command": command})

    def _forget(self) -> None:
        """It did not start. The archive may be the reason."""
        for path in (self._file, self._archive):
            if path is not None:
                path.unlink(missing_ok=True)

    def _archive_options(self) -> list[str]:
        if self._archive is None or size_of(self._archive) is None:
            return []
        # One that is damaged, or does not fit this Java or these jars, is not used. One that
        # was cut short kills the JVM at once; then it is forgotten.
        return [
            f"-XX:SharedArchiveFile={self._archive}",
            "-XX:+VerifySharedSpaces",
            "-Xshare:auto",
            "-Xlog:cds*=off",
        ]


def _await_connection(process: subprocess.Popen[bytes], told: Path) -> tuple[str, str] | None:
    """Port and secret; None: the JVM has ended, or is stuck."""
    deadline = time.monotonic() + _START_SECONDS
    while not told.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    data = told.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return str(port), data[8 : 8 + length].decode()
