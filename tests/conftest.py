"""Rules for all tests: folders give the markers, and the fast ones stay free of a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

KINDS = ("unit", "property", "server", "e2e", "browser", "spark", "kafka")
"""The folders below tests/, in the order in which they run: what fails in milliseconds before
the rest, and the longest before the shorter ones, so that several workers end together."""
WITHOUT_JVM = ("unit", "property", "server")
IN_ONE_PROCESS = ("tests/e2e/test_cluster.py",)
"""Modules whose tests find what the one before has left."""
_HERE = Path(__file__).parent

# For every JVM of a test, in whichever process it is started. It lives for seconds, and spends
# half of its CPU time on optimised code that is hardly used, and on loading Spark's classes.
_JAVA_OPTIONS = ["-XX:TieredStopAtLevel=1"]
_CLASSES = _HERE.parent / ".venv" / "spark-classes.jsa"
if _CLASSES.exists():  # `make test` writes it; Java ignores one that does not fit
    _JAVA_OPTIONS += [f'-XX:SharedArchiveFile="{_CLASSES}"', "-Xshare:auto", "-Xlog:cds*=off"]
os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(_JAVA_OPTIONS))

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `pytest -n`: each test goes to whoever is free, in order, but for IN_ONE_PROCESS.

    `--dist loadgroup` would be that, but pytest 9.2 ignores its groups (pytest-xdist #1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    def scope(nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if module in IN_ONE_PROCESS else nodeid

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = scope
    return scheduler


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
