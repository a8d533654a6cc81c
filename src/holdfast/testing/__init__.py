"""For the tests of your own jobs: a KeyedProcess in plain Python, with no Spark and no JVM."""

from holdfast.testing.harness import Harness, Snapshot

__all__ = ["Harness", "Snapshot"]
