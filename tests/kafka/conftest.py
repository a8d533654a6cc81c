"""One broker and one JVM for all tests of this folder; every test gets topics of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.control.kafka.broker import LocalBroker
from kafka.cluster import Cluster, sasl_properties

# Workers unpickle the tests' process classes by reference.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)

JAR_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "holdfast-tests"
"""Outside the repository: jars are resolved by Maven once, and never committed."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as home:
        broker = LocalBroker(Path(home), cache=JAR_CACHE)
        port, sasl_port, properties = sasl_properties()
        broker.up(port=port, properties=properties)
        try:
            yield Cluster(broker, sasl_port)
        finally:
            broker.down()


@pytest.fixture
def topic(cluster: Cluster) -> Callable[..., str]:
    """Makes a topic with a name that no other test uses."""
    return cluster.new_topic
