"""A driver whose job has been taken over begins no other epoch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord
from holdfast.engine.driver import _Counter
from holdfast.errors import ConflictError


def test_an_epoch_begins_only_while_the_job_is_ours(tmp_path: Path) -> None:
    begun: list[EpochRecord] = []
    directory, other = JobDirectory(tmp_path, "wiki"), JobDirectory(tmp_path, "wiki")
    lease = directory.lease.acquire()
    request: Any = SimpleNamespace(
        directory=directory, fence=lease.epoch, attempt=1, on_epoch=begun.append
    )
    counter = _Counter(request, SimpleNamespace())  # type: ignore[arg-type]
    counter.begun(0)
    other.lease.acquire(take_over=True)
    with pytest.raises(ConflictError, match="FENCED"):
        counter.begun(1)
    (tmp_path / "wiki" / "lease.json").write_text("{}")
    counter.begun(2)  # the sinks have a fence of their own
    assert [record.epoch for record in begun] == [0, 2]
