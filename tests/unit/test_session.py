"""Room on the machine, for whoever starts a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.registry import Registry
from holdfast.control.session import Claim, all_claims, room_for
from holdfast.control.tracked.log import OperationLog
from holdfast.errors import ConflictError
from holdfast.settings import load_settings

JOB = """
import holdfast as hf
job = hf.Job("wiki", parallelism=2)

@job.pipeline
def pipeline(flow):
    pass
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(f"sqlite:///{tmp_path}/registry.db") as registry:
        registry.ensure_schema()
        yield registry


def settings(home: Path, **given: Any) -> Any:
    return load_settings(home=home, master="local[2]", **given).values


def test_an_operation_keeps_its_room(registry: Registry, tmp_path: Path) -> None:
    log, full = OperationLog(registry), settings(tmp_path, session_cores=3)
    for job, kind in (("a", "savepoint"), ("b", "rescale")):
        log.add(job, kind, {}, asked_by="ann", exclusive=True)
    assert [claim.job for claim in all_claims(registry, full)] == ["b"]
    one_more = Claim(job="c", cores=2, memory=1)
    with pytest.raises(ConflictError, match="SESSION_FULL"), room_for(registry, one_more, full):
        pass
    own = Claim(job="b", cores=2, memory=1)
    with room_for(registry, own, full):
        pass
    with room_for(registry, one_more, settings(tmp_path)):  # without a budget
        pass


@pytest.mark.parametrize(
    "how",
    [[], ["--detach"], ["--unsupervised"]],
    ids=["here", "detached", "in this process"],
)
def test_a_start_from_a_terminal_needs_room(tmp_path: Path, how: list[str]) -> None:
    """Refused before there is a driver: no JVM starts."""
    (tmp_path / "wiki.py").write_text(JOB)
    options = ["--home", str(tmp_path / "home"), "--master", "local[2]", *how]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "holdfast.cli.main", "run", "wiki.py", *options],
        cwd=tmp_path,
        env=os.environ | {"HOLDFAST_SESSION_CORES": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4 and "SESSION_FULL" in done.stderr
