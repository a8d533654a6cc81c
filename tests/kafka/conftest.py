"""One broker and one JVM for all tests of this folder; every test gets topics of its own."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.control.kafka.broker import LocalBroker
from holdfast.control.maven import resolved_jars
from holdfast.sinks import memory_rows
from kafka.certificates import make_certificates
from kafka.cluster import Cluster, Listeners, SecuredCluster
from kafka.workshop import Workshop
from spark.workplace import Memory

# Workers unpickle the tests' process classes by reference.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)

JAR_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "holdfast-tests"
"""Outside the repository: jars are resolved by Maven once, and never committed."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[SecuredCluster]:
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as home:
        certificates = make_certificates(Path(home, "certificates"))
        broker = LocalBroker(Path(home), cache=JAR_CACHE)
        cluster = SecuredCluster(broker, Listeners(certificates))
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.broker.down()


@pytest.fixture(scope="session")
def jars() -> str:
    """The connector, in the mix of versions that the repository of the tests has."""
    pom = Path(__file__).with_name("connector.pom.xml").read_text("utf-8")
    folder = resolved_jars(JAR_CACHE, "kafka-connector", pom)
    # Spark has its own of all the others.
    wanted = ("spark-", "kafka-clients", "commons-pool2")
    found = [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(wanted)]
    return ",".join(jar for jar in found if "spark-tags" not in jar)


@pytest.fixture(scope="session")
def _fresh_spark() -> None:
    """Jars are for a JVM that starts: one that tests of another folder have left has none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is not None:
        session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def shop(tmp_path: Path, jars: str, cluster: Cluster, _fresh_spark: None) -> Workshop:
    return Workshop(tmp_path, "heap", jars)


@pytest.fixture
def memory() -> Memory:
    """Memory sinks with names that no other test uses."""
    prefix = uuid.uuid4().hex

    def sink(name: str) -> tuple[hf.sinks.Memory, Callable[[], list[Any]]]:
        full = f"{prefix}-{name}"
        return hf.sinks.Memory(full), lambda: memory_rows(full)

    return sink


@pytest.fixture
def topic(cluster: Cluster) -> Callable[..., str]:
    """Makes a topic with a name that no other test uses."""
    return cluster.new_topic
