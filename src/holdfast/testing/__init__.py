"""For the tests of your own jobs: processes and flows in plain Python, without Spark.

:mod:`holdfast.testing.strategies` has Hypothesis strategies for edits; it needs hypothesis.
"""

from holdfast.testing.flow_harness import FlowHarness
from holdfast.testing.harness import Harness, Snapshot

__all__ = ["FlowHarness", "Harness", "Snapshot"]
