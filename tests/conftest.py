"""Rules for all tests: folders give the markers, and the fast ones stay free of a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

KINDS = ("unit", "property", "spark", "kafka", "e2e")
"""The folders below tests/, fastest first: also the order in which they run."""
WITHOUT_JVM = ("unit", "property")
_HERE = Path(__file__).parent

# No deadlines: the machines that run this are shared. CI repeats the same examples.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


def _kind(path: Path) -> str | None:
    kind = path.relative_to(_HERE).parts[0] if path.is_relative_to(_HERE) else ""
    return kind if kind in KINDS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = _kind(item.path)
        if kind is None:
            raise pytest.UsageError(f"{item.nodeid}: put tests into one of {', '.join(KINDS)}")
        item.add_marker(kind)
    items.sort(key=lambda item: KINDS.index(_kind(item.path) or KINDS[-1]))


def jvm_started() -> bool:
    """Whether this process holds a connection to a JVM. Does not import pyspark."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and (
        context._active_spark_context is not None or context._gateway is not None
    )


@pytest.fixture(autouse=True)
def _without_jvm(request: pytest.FixtureRequest) -> Iterator[None]:
    """A unit or property test that starts a JVM belongs into tests/spark."""
    before = jvm_started()
    yield
    if _kind(request.path) in WITHOUT_JVM and jvm_started() and not before:
        pytest.fail("this test started a JVM; move it to tests/spark")
