"""What `holdfast run` says about a start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.checkpoint.record import StartReport
from holdfast.cli.reporter import TextReporter

START = StartReport(
    job="wiki",
    attempt=2,
    resumed=False,
    guarantee="exactly once",
    weak_links=(),
    parallelism=2,
    key_groups=64,
    backend="heap",
    interval="1 s",
    sources={},
    sinks={},
    never_forget=(),
    directory="jobs/wiki",
    timings={},
)


@pytest.mark.parametrize(
    ("start", "how"),
    [
        (START, "started without state"),
        (replace(START, resumed=True), "resumed from its last checkpoint"),
        (replace(START, resumed=True, origin="checkpoint:3"), "started from checkpoint:3"),
        (replace(START, resumed=True, origin="savepoint s1"), "started from savepoint s1"),
    ],
)
def test_the_first_line_says_what_the_job_goes_on_from(
    start: StartReport, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    TextReporter().started(start)
    assert capsys.readouterr().out.splitlines()[0] == f"job wiki: attempt 2, {how}"
