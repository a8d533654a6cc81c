"""One JVM for all tests of this folder; every test gets a job directory of its own."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.engine.driver import start_session
from holdfast.sinks import memory_rows
from spark.workplace import Memory, Workplace

# Workers unpickle the tests' process classes by reference.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)


ON_BOTH_BACKENDS = {
    "test_broadcast",
    "test_exact",
    "test_resume",
    "test_time",
    "test_types",
    "test_windows",
}
"""All that is about state."""
ALWAYS_ON_BOTH = {
    "test_every_kind_of_state",
    "test_many_keys_in_one_batch_and_a_hot_key",
    "test_several_sinks_side_outputs_and_branches",
}
"""The others are with rocksdb only in `make test-long`: unit tests have both in the harness."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        always = metafunc.function.__name__ in ALWAYS_ON_BOTH
        marks = [] if always else [pytest.mark.long]
        rocksdb = pytest.param("rocksdb", marks=marks)
        backends = ["heap", rocksdb] if module in ON_BOTH_BACKENDS else ["heap"]
        metafunc.parametrize("place", backends, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def _jvm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The JVM, started as on a machine that has run holdfast before.

    Spark starts a Python process for each step of each run. If PySpark has started the JVM in
    its own way, each of them compiles all of PySpark anew (see holdfast.engine.jvm).
    """
    folder = tmp_path_factory.mktemp("jvm")
    runtime = replace(Workplace(folder).runtime(), cache=str(folder / "cache"))
    first = multiprocessing.get_context("spawn").Process(
        target=start_session, args=(runtime, folder / "first.log")
    )
    first.start()  # it finds out how, and ends
    first.join()
    assert list((folder / "cache").glob("launch-*.json"))
    start_session(runtime, folder / "log")


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Workplace:
    return Workplace(tmp_path, request.param)


@pytest.fixture
def memory() -> Memory:
    """Memory sinks with names that no other test uses."""
    prefix = uuid.uuid4().hex

    def sink(name: str) -> tuple[hf.sinks.Memory, Callable[[], list[Any]]]:
        full = f"{prefix}-{name}"
        return hf.sinks.Memory(full), lambda: memory_rows(full)

    return sink
