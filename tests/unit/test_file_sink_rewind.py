"""A file sink that is taken back: what does not lead to the timeline goes, all else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from holdfast.faults import armed
from holdfast.storage.file_sink_log import FileSinkLog
from unit.test_file_sink_log import CLOCK, opened, visible_rows, write


def filled(out: Path) -> FileSinkLog:
    """Epochs 0 to 4 in timeline t0, and a row of another sink beside them."""
    log = opened(out, timeline="t0")
    for epoch in range(5):
        write(log, epoch, [f"t0-{epoch}a"], [f"t0-{epoch}b"])
    write(opened(out, sink_uid="other"), 7, ["other"])
    return log


def test_what_lies_beyond_is_counted_and_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    log = opened(tmp_path, timeline="t1")
    kept = {"t1": None, "t0": 2}
    assert [(each.timeline, each.epoch) for each in log.beyond(kept)] == [("t0", 4), ("t0", 3)]
    assert sum(each.rows for each in log.rewind(kept)) == 4
    before = [f"t0-{epoch}{part}" for epoch in range(3) for part in "ab"]
    assert visible_rows(tmp_path) == sorted([*before, "other"])
    assert log.beyond(kept) == []
    # The new timeline writes the same epochs again; a repeated rewind leaves them alone.
    write(log, 3, ["t1-3"])
    assert log.rewind(kept) == []
    assert visible_rows(tmp_path) == sorted([*before, "other", "t1-3"])


def test_timelines_that_do_not_lead_here_go_as_a_whole(tmp_path: Path) -> None:
    filled(tmp_path)
    first = opened(tmp_path, timeline="t1")
    write(first, 3, ["t1-3"])
    log = opened(tmp_path, timeline="t2")
    log.rewind({"t2": None, "t0": 0})
    assert visible_rows(tmp_path) == ["other", "t0-0a", "t0-0b"]


def test_a_rewind_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    filled(tmp_path)
    kept = {"t1": None, "t0": 1}
    with armed("sink.mid_rewind=raise@2"), pytest.raises(RuntimeError):
        opened(tmp_path, timeline="t1").rewind(kept)
    log = opened(tmp_path, timeline="t1")
    assert [each.epoch for each in log.rewind(kept)] == [3, 2]
    assert visible_rows(tmp_path) == ["other", "t0-0a", "t0-0b", "t0-1a", "t0-1b"]


def test_an_attempt_that_was_replaced_removes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    old = opened(tmp_path, timeline="t1")
    newer = FileSinkLog(
        tmp_path,
        job_id="id-1",
        job_name="wiki",
        sink_uid="out",
        file_format="jsonl",
        timeline="t1",
        fence=1,
        clock=CLOCK,
    )
    newer.open()
    with pytest.raises(ConflictError, match="taken over"):
        old.rewind({"t1": None})
    assert len(visible_rows(tmp_path)) == 11
