"""How Spark's JVM is started the second time, with a shell script in the place of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config import RuntimeConfig
from holdfast.engine import jvm
from holdfast.engine.jvm import Installation, KnownJvm, class_archive
from holdfast.engine.session import begin_jvm
from holdfast.storage.files import read_json, write_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are read from /proc")

CONF = {"spark.master": "local[2]", "spark.app.name": "a name"}
TELL = r"""printf '\0\0\0\007\0\0\0\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH"; """


class Machine:
    """A Spark and a Java of our own."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in list(os.environ):
            if name.startswith(("SPARK_", "PYSPARK_", "JAVA_")):
                monkeypatch.delenv(name)
        self.cache, self.log = path / "cache", path / "log.txt"
        self.spark, self.java = path / "pyspark", path / "jdk" / "bin" / "java"
        (self.spark / "jars").mkdir(parents=True)
        (self.spark / "version.py").write_text("4.3.0")
        self.java.parent.mkdir(parents=True)
        self.install("exec sleep 60")
        monkeypatch.setenv("JAVA_HOME", str(path / "jdk"))
        monkeypatch.setattr(jvm, "_spark_folder", lambda: self.spark)

    def install(self, does: str) -> None:
        self.java.write_text(f'#!/bin/sh\necho "$@"; {does}\n')
        self.java.chmod(0o755)

    def known(self, **conf: str) -> KnownJvm:
        return KnownJvm(self.cache, CONF | conf)

    def learn(self, known: KnownJvm, *options: str) -> None:
        """As if Spark's scripts had started a JVM with these options."""
        main = "org.apache.spark.deploy.SparkSubmit"
        script = "import time; print(flush=True); time.sleep(60)"
        command = [sys.executable, "-c", script, *options, main, "--conf", "secret=1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
            assert started.stdout is not None
            started.stdout.readline()
            known.learn(started.pid)
            started.kill()
        [file] = self.cache.glob("launch-*.json")
        stored = read_json(file)
        # What ran was Python, so that there was a process to look at.
        write_json(file, stored | {"command": [str(self.java), *stored["command"][3:]]})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def started(known: KnownJvm, log: Path) -> tuple[str, str] | None:
    """What the JVM tells about itself."""
    known.start(log)
    assert known._coming is not None
    process, told = known._coming
    try:
        return jvm._await_connection(process, told)
    finally:
        process.kill()
        process.communicate()


def test_the_first_start_is_left_to_spark(machine: Machine) -> None:
    known = machine.known()
    known.start(machine.log)
    assert known.connect() is False
    assert not machine.log.exists()


def test_the_second_start_repeats_the_first_with_the_settings_of_today(
    machine: Machine,
) -> None:
    machine.install(TELL + "exec sleep 60")
    machine.learn(machine.known(), "-cp", "jars/*", "-Xmx2g")
    assert "secret" not in next(machine.cache.iterdir()).read_text()
    assert started(machine.known(), machine.log) == ("7", "abc")
    command = machine.log.read_text().split("\n")[0]
    assert command == (
        "-cp jars/* -Xmx2g org.apache.spark.deploy.SparkSubmit --conf spark.master=local[2] "
        "--conf spark.app.name=a name pyspark-shell"
    )


def test_classes_come_from_an_archive_if_there_is_one(machine: Machine) -> None:
    machine.install(TELL + "exec sleep 60")
    machine.learn(machine.known(), "-Xmx2g")
    archive = class_archive(machine.cache)
    assert archive is not None
    archive.write_bytes(b"classes")
    started(machine.known(), machine.log)
    options = machine.log.read_text().split()
    assert options[0] == f"-XX:SharedArchiveFile={archive}"
    assert "-Xshare:auto" in options[: options.index("-Xmx2g")]


def test_a_jvm_that_ends_at_once_is_forgotten_with_its_archive(machine: Machine) -> None:
    machine.install("exit 1")
    machine.learn(machine.known())
    archive = class_archive(machine.cache)
    assert archive is not None
    archive.write_bytes(b"broken")
    known = machine.known()
    known.start(machine.log)
    assert known.connect() is False
    assert list(machine.cache.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"command": []}'])
def test_what_cannot_be_read_is_not_known(machine: Machine, content: str) -> None:
    machine.learn(machine.known())
    next(machine.cache.iterdir()).write_text(content)
    known = machine.known()
    known.start(machine.log)
    assert known.connect() is False


def test_another_java_spark_or_setting_is_another_launch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name() -> str:
        return machine.known()._file.name  # type: ignore[union-attr]

    first = name()
    assert name() == first
    assert machine.known(**{"spark.driver.memory": "3g"})._file != machine.cache / first
    os.utime(machine.java, ns=(1, 1))
    second = name()
    os.utime(machine.spark / "jars", ns=(1, 1))
    third = name()
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    assert len({first, second, third, name()}) == 4


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_SUBMIT_ARGS"])
def test_what_is_unusual_is_left_to_sparks_scripts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert Installation.found() is not None
    monkeypatch.setenv(name, "anything")
    assert Installation.found() is None
    machine.known().learn(os.getpid())
    assert not machine.cache.exists()


def test_so_is_a_configuration_directory(machine: Machine) -> None:
    (machine.spark / "conf").mkdir()
    assert Installation.found() is None
    assert class_archive(machine.cache) is None


def test_only_with_a_cache_and_a_local_master(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    for runtime in (
        RuntimeConfig(storage=tmp_path),
        RuntimeConfig(storage=tmp_path, cache=cache, master="spark://host:7077"),
    ):
        assert begin_jvm(runtime, tmp_path / "log") is None
