"""Room on the machine, for whoever starts a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
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


def test_a_start_from_a_terminal_needs_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before there is a driver: no JVM starts."""
    app, home = tmp_path / "wiki.py", tmp_path / "home"
    app.write_text(JOB)
    monkeypatch.setenv("HOLDFAST_SESSION_CORES", "1")
    assert main(["run", str(app), "--home", str(home), "--master", "local[2]"]) == 4
    assert "SESSION_FULL" in capsys.readouterr().err
    detached = ["run", str(app), "--detach", "--home", str(home), "--master", "local[2]"]
    assert main(detached) == 4
    assert "SESSION_FULL" in capsys.readouterr().err
