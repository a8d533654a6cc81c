"""Whose threads are looked at, and by which tool."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.control.registry import Registry
from holdfast.control.states import RunState
from holdfast.control.threads import dump_threads, jvm_command
from holdfast.errors import ConflictError, EnvironmentProblem


def test_the_tool_that_the_java_has_is_used() -> None:
    both: dict[str, str] = {"jcmd": "/jdk/jcmd", "jstack": "/jdk/jstack"}
    assert jvm_command(7, both.get) == ["/jdk/jcmd", "7", "Thread.print", "-l"]
    assert jvm_command(7, lambda name: both[name] if name == "jstack" else None) == [
        "/jdk/jstack",
        "-l",
        "7",
    ]
    with pytest.raises(EnvironmentProblem, match="JDK_MISSING"):
        jvm_command(7, lambda _: None)


def test_only_a_driver_that_runs_here_has_threads(tmp_path: Path) -> None:
    with (
        Registry(f"sqlite:///{tmp_path / 'registry.db'}") as registry,
        subprocess.Popen(["sleep", "600"]) as driver,
    ):
        registry.ensure_schema()
        row = registry.register_job("wiki", {})
        with pytest.raises(ConflictError, match="JOB_NOT_RUNNING"):
            dump_threads(row, [])
        here = socket.gethostname()
        attempt = registry.start_attempt(row.id, driver.pid, here, datetime.now(UTC), {})
        registry.set_state(row.id, RunState.RUNNING)
        row = registry.job("wiki")
        with pytest.raises(ConflictError, match="JOB_NOT_RUNNING"):
            dump_threads(row, [replace(attempt, host="elsewhere.example")])
        with pytest.raises(ConflictError, match="JVM_NOT_FOUND"):
            dump_threads(row, [attempt])
        driver.kill()
