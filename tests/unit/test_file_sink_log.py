"""The epoch commit protocol of file sinks, step by step and crash by crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    EnvironmentProblem,
    HoldfastError,
    JobDefinitionError,
    NotFoundError,
    SettingsError,
    UsageError,
)
from holdfast.faults import armed, fired_points
from holdfast.storage import file_sink_log
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile, committed_files

SRC = Path(file_sink_log.__file__).parent.parent.parent
CLOCK = ManualClock()


def make_log(directory: Path, **changes: str) -> FileSinkLog:
    settings: dict[str, Any] = {
        "job_id": "id-1",
        "job_name": "wiki",
        "sink_uid": "out",
        "file_format": "jsonl",
        "timeline": "main",
    }
    return FileSinkLog(directory, clock=CLOCK, **(settings | changes))


def opened(directory: Path, **changes: str) -> FileSinkLog:
    log = make_log(directory, **changes)
    log.open()
    return log


def stage(staging: Path, *contents: list[str]) -> list[StagedFile]:
    """Write one file per list of rows, as a task of an attempt would."""
    staged = []
    for number, rows in enumerate(contents):
        path = staging / f"task-{number}"
        path.write_text("".join(f"{row}\n" for row in rows))
        staged.append(StagedFile(name=path.name, rows=len(rows), bytes=path.stat().st_size))
    return staged


def write(log: FileSinkLog, epoch: int, *contents: list[str]) -> file_sink_log.CommitRecord:
    staging = log.begin(epoch)
    return log.commit(epoch, staging, stage(staging, *contents))


def visible(directory: Path) -> dict[str, list[str]]:
    """What a reader that simply lists the directory sees."""
    paths = (path for path in directory.iterdir() if path.name[0] not in "._")
    return {path.name: path.read_text().splitlines() for path in sorted(paths)}


def visible_rows(directory: Path) -> list[str]:
    return sorted(row for rows in visible(directory).values() for row in rows)


def private(directory: Path) -> Path:
    return directory / "_holdfast" / "wiki" / "out"


def leftovers(directory: Path) -> list[str]:
    return sorted(path.name for path in (private(directory) / "staging").iterdir())


def record_path(directory: Path, epoch: int) -> Path:
    return private(directory) / "commits" / "main" / f"{epoch:012d}.json"


# The plain path


def test_commit_publishes_under_names_that_tell_timeline_and_epoch(tmp_path: Path) -> None:
    log = opened(tmp_path)
    record = write(log, 7, ["a", "b"], ["c"])
    names = list(visible(tmp_path))
    assert [name.rpartition("-")[0] for name in names] == [
        "part-main-000000007-00000",
        "part-main-000000007-00001",
    ]
    assert all(name.endswith(".jsonl") for name in names)
    assert visible_rows(tmp_path) == ["a", "b", "c"]
    assert leftovers(tmp_path) == []
    assert (record.epoch, record.timeline, record.rows, record.bytes) == (7, "main", 3, 6)
    assert not record.already
    assert record.committed_at == CLOCK.now()


def test_record_reads_back_equal(tmp_path: Path) -> None:
    log = opened(tmp_path)
    record = write(log, 7, ["a", "b"], ["c"])
    assert log.record(7) == record
    assert opened(tmp_path).record(7) == record


def test_record_on_disk(tmp_path: Path) -> None:
    """Everything stored has a version; this is version 1 field by field."""
    record = write(opened(tmp_path), 7, ["a", "b"])
    assert json.loads(record_path(tmp_path, 7).read_bytes()) == {
        "format_version": 1,
        "timeline": "main",
        "epoch": 7,
        "staging": record.staging,
        "files": [
            {
                "staged": f"staging/{record.staging}/task-0",
                "name": next(iter(visible(tmp_path))),
                "rows": 2,
                "bytes": 4,
            }
        ],
        "rows": 2,
        "bytes": 4,
        "committed_at": "2026-01-01T00:00:00+00:00",
    }


def test_nothing_is_visible_before_commit(tmp_path: Path) -> None:
    log = opened(tmp_path)
    stage(log.begin(0), ["a"])
    assert visible(tmp_path) == {}
    assert not log.is_committed(0)


def test_files_without_rows_are_dropped(tmp_path: Path) -> None:
    record = write(opened(tmp_path), 0, [], ["a"], [])
    assert len(record.files) == 1
    assert list(visible(tmp_path).values()) == [["a"]]
    assert leftovers(tmp_path) == []


def test_an_epoch_without_rows_is_committed_all_the_same(tmp_path: Path) -> None:
    log = opened(tmp_path)
    record = write(log, 0)
    assert (record.rows, record.files) == (0, ())
    assert log.is_committed(0)
    assert visible(tmp_path) == {}


def test_files_in_subdirectories_of_staging(tmp_path: Path) -> None:
    log = opened(tmp_path)
    staging = log.begin(0)
    (staging / "x" / "y").mkdir(parents=True)
    (staging / "x" / "y" / "file").write_text("a\n")
    log.commit(0, staging, [StagedFile(name="x/y/file", rows=1, bytes=2)])
    assert visible_rows(tmp_path) == ["a"]
    assert leftovers(tmp_path) == []


def test_epochs_in_order(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for epoch in (2, 10, 0):
        write(log, epoch, [f"row {epoch}"])
    assert log.committed_epochs() == [0, 2, 10]
    assert [log.is_committed(epoch) for epoch in (0, 1, 2)] == [True, False, True]
    with pytest.raises(NotFoundError):
        log.record(1)


def test_committed_files_in_order_and_only_ours(tmp_path: Path) -> None:
    write(opened(tmp_path, timeline="t2"), 1, ["x"])
    log = opened(tmp_path, timeline="t-1")
    write(log, 10, ["d"])
    write(log, 9, ["a"], ["b"])
    (tmp_path / "notes.jsonl").write_text("mine\n")
    (tmp_path / "part-0.jsonl").write_text("mine\n")
    rows = [path.read_text().strip() for path in committed_files(tmp_path)]
    assert rows == ["a", "b", "d", "x"]
    assert committed_files(tmp_path / "nothing") == []


# Second attempts


def test_second_attempt_changes_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    first = write(log, 3, ["a"])
    before = visible(tmp_path)
    second = write(log, 3, ["a"], ["different"])
    assert second.already
    assert (second.files, second.staging) == (first.files, first.staging)
    assert visible(tmp_path) == before
    assert leftovers(tmp_path) == []


def test_two_attempts_at_once_one_wins(tmp_path: Path) -> None:
    log = opened(tmp_path)
    one, two = log.begin(3), log.begin(3)
    assert one != two
    files_one, files_two = stage(one, ["one"]), stage(two, ["two"])
    assert not log.commit(3, two, files_two).already
    assert log.commit(3, one, files_one).already
    assert visible_rows(tmp_path) == ["two"]


def test_many_threads_commit_the_same_epoch(tmp_path: Path) -> None:
    results: list[file_sink_log.CommitRecord] = []
    barrier = threading.Barrier(6)
    logs = [opened(tmp_path) for _ in range(6)]

    def attempt(number: int) -> None:
        staging = logs[number].begin(0)
        files = stage(staging, [f"{number}-a"], [f"{number}-b"])
        barrier.wait()
        results.append(logs[number].commit(0, staging, files))

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(result.already for result in results) == [False] + [True] * 5
    winner = visible_rows(tmp_path)[0][0]
    assert visible_rows(tmp_path) == [f"{winner}-a", f"{winner}-b"]
    assert leftovers(tmp_path) == []


def test_second_attempt_completes_what_the_first_left_unpublished(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with armed("sink.mid_publication=raise"), pytest.raises(RuntimeError):
        write(log, 0, ["a"], ["b"])
    assert write(log, 0, ["other"]).already
    assert visible_rows(tmp_path) == ["a", "b"]
    assert leftovers(tmp_path) == []


# Crashes

POINTS = {
    "sink.before_staging": False,
    "sink.before_commit_record": False,
    "sink.after_commit_record": True,
    "sink.mid_publication": True,
    "sink.after_publication": True,
}

CRASHING_CHILD = """
import sys
from pathlib import Path
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile
log = FileSinkLog(Path(sys.argv[1]), job_id="id-1", job_name="wiki", sink_uid="out",
                  file_format="jsonl", timeline="main")
log.open()
for epoch in range(3):
    staging = log.begin(epoch)
    files = []
    for n in range(3):
        (staging / str(n)).write_text(f"{epoch}.{n}\\n")
        files.append(StagedFile(name=str(n), rows=1, bytes=4))
    log.commit(epoch, staging, files)
"""


@pytest.mark.parametrize("point", POINTS)
def test_kill_9_then_recover(tmp_path: Path, point: str) -> None:
    """Killed within the second epoch: it is there as a whole or not at all."""
    out, fault_log = tmp_path / "out", tmp_path / "faults"
    environment = dict(os.environ, PYTHONPATH=str(SRC), HOLDFAST_FAULTS=f"{point}=kill@2")
    environment["HOLDFAST_FAULTS_LOG"] = str(fault_log)
    child = subprocess.run(
        [sys.executable, "-c", CRASHING_CHILD, str(out)],
        env=environment,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert fired_points(fault_log) == [point]
    committed = POINTS[point]
    complete = [f"{epoch}.{n}" for epoch in range(2 if committed else 1) for n in range(3)]
    assert set(visible_rows(out)) <= set(complete)

    log = make_log(out)
    recovery = log.open()
    assert visible_rows(out) == complete
    assert log.is_committed(1) == committed
    assert recovery.completed_epochs == ((1,) if committed else ())
    assert len(recovery.discarded) == (1 if point == "sink.before_commit_record" else 0)
    assert leftovers(out) == []
    assert make_log(out).open() == file_sink_log.Recovery()


def test_crash_during_recovery(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with armed("sink.after_commit_record=raise"), pytest.raises(RuntimeError):
        write(log, 0, ["a"], ["b"], ["c"])
    with armed("sink.mid_publication=raise"), pytest.raises(RuntimeError):
        make_log(tmp_path).open()
    assert visible_rows(tmp_path) == ["a"]
    assert make_log(tmp_path).open().completed_epochs == (0,)
    assert visible_rows(tmp_path) == ["a", "b", "c"]


def test_recovery_completes_epochs_of_other_timelines(tmp_path: Path) -> None:
    log = opened(tmp_path, timeline="old-1")
    with armed("sink.after_commit_record=raise"), pytest.raises(RuntimeError):
        write(log, 5, ["a"])
    stage(log.begin(6), ["lost"])
    recovery = make_log(tmp_path, timeline="new").open()
    assert [(record.timeline, record.epoch) for record in recovery.completed] == [("old-1", 5)]
    assert len(recovery.discarded) == 1
    assert visible_rows(tmp_path) == ["a"]


def test_recovery_discards_what_it_does_not_know(tmp_path: Path) -> None:
    opened(tmp_path)
    (private(tmp_path) / "staging" / "strange").mkdir()
    (private(tmp_path) / "staging" / "file").touch()
    assert make_log(tmp_path).open().discarded == ("file", "strange")
    assert leftovers(tmp_path) == []


def test_recovery_reads_no_old_record(tmp_path: Path) -> None:
    """100k old records must cost nothing: unreadable ones prove that they are not read."""
    log = opened(tmp_path)
    for epoch in range(20):
        write(log, epoch, [str(epoch)])
        record_path(tmp_path, epoch).write_bytes(b"garbage")
    assert make_log(tmp_path).open() == file_sink_log.Recovery()


def test_staging_discarded_by_another_run_is_a_named_conflict(tmp_path: Path) -> None:
    stale = opened(tmp_path)
    staging = stale.begin(0)
    files = stage(staging, ["stale"])
    fresh = opened(tmp_path)
    with pytest.raises(ConflictError) as caught:
        stale.commit(0, staging, files)
    assert caught.value.name == "STAGING_DISCARDED"
    assert not fresh.is_committed(0)
    write(fresh, 0, ["fresh"])
    assert stale.commit(0, staging, files).already
    assert visible_rows(tmp_path) == ["fresh"]


def test_full_disk_at_each_step_is_named_and_recoverable(tmp_path: Path) -> None:
    for number, (point, committed) in enumerate(POINTS.items()):
        out = tmp_path / str(number)
        log = opened(out)
        with armed(f"{point}=enospc"), pytest.raises(EnvironmentProblem) as caught:
            write(log, 0, ["a"], ["b"])
        assert caught.value.name == "DISK_FULL"
        log = opened(out)
        assert log.is_committed(0) == committed
        assert visible_rows(out) == (["a", "b"] if committed else [])
        write(log, 0, ["a"], ["b"])
        assert visible_rows(out) == ["a", "b"]


# Several owners


def test_same_sub_path_of_another_job_id_is_refused(tmp_path: Path) -> None:
    write(opened(tmp_path), 0, ["a"])
    with pytest.raises(ConflictError) as caught:
        make_log(tmp_path, job_id="id-2").open()
    assert caught.value.name == "SINK_OWNED_BY_ANOTHER_JOB"
    assert "id-1" in caught.value.message
    assert caught.value.fix


def test_a_refused_job_touches_nothing(tmp_path: Path) -> None:
    staging = opened(tmp_path).begin(0)
    with pytest.raises(ConflictError):
        make_log(tmp_path, job_id="id-2").open()
    assert staging.is_dir()


def test_other_sinks_share_the_directory_without_collision(tmp_path: Path) -> None:
    for changes in ({}, {"sink_uid": "second"}, {"job_id": "id-2", "job_name": "other"}):
        write(opened(tmp_path, **changes), 0, [str(changes)])
    assert len(visible(tmp_path)) == 3


def test_changed_format_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(ConflictError) as caught:
        make_log(tmp_path, file_format="parquet").open()
    assert caught.value.name == "SINK_FORMAT_CHANGED"


# Damage


def break_file(edit: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        fields = json.loads(data)
        edit(fields)
        return json.dumps(fields).encode()

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: b"[]",
        lambda data: b"null",
        break_file(lambda fields: fields.pop("files")),
        break_file(lambda fields: fields.update(format_version=99)),
        break_file(lambda fields: fields.update(epoch=1)),
        break_file(lambda fields: fields.update(timeline="other")),
        break_file(lambda fields: fields.update(rows="2")),
        break_file(lambda fields: fields.update(rows=77)),
        break_file(lambda fields: fields.update(staging="../../..-0-ab")),
        break_file(lambda fields: fields["files"][0].update(name="../part-main-0-0.jsonl")),
        break_file(lambda fields: fields["files"][0].update(staged="staging/../owner.json")),
        break_file(lambda fields: fields.update(committed_at="yesterday")),
    ],
)
def test_odd_record_is_corruption_that_names_the_file(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    log = opened(tmp_path)
    write(log, 0, ["a", "b"])
    path = record_path(tmp_path, 0)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptionError) as caught:
        log.record(0)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format_version": 2}'])
def test_odd_owner_is_corruption(tmp_path: Path, data: bytes) -> None:
    opened(tmp_path)
    (private(tmp_path) / "owner.json").write_bytes(data)
    with pytest.raises(CorruptionError, match=r"owner\.json"):
        make_log(tmp_path).open()


def unpublished(directory: Path) -> Path:
    """An epoch with a record whose only file still lies in staging."""
    log = opened(directory)
    with armed("sink.after_commit_record=raise"), pytest.raises(RuntimeError):
        write(log, 0, ["a"])
    (staged,) = (private(directory) / "staging").glob("*/task-0")
    return staged


def test_lost_file_names_both_places(tmp_path: Path) -> None:
    staged = unpublished(tmp_path)
    staged.unlink()
    with pytest.raises(CorruptionError) as caught:
        make_log(tmp_path).open()
    assert caught.value.name == "COMMITTED_FILE_MISSING"
    assert str(staged) in caught.value.message
    assert "part-main-000000000-00000" in caught.value.message


def test_truncated_file_is_not_published(tmp_path: Path) -> None:
    staged = unpublished(tmp_path)
    staged.write_bytes(b"a")
    with pytest.raises(CorruptionError, match="has 1 bytes, but 2"):
        make_log(tmp_path).open()
    assert visible(tmp_path) == {}


def test_a_foreign_file_under_the_final_name_is_not_overwritten(tmp_path: Path) -> None:
    unpublished(tmp_path)
    name = make_log(tmp_path).record(0).files[0].name
    (tmp_path / name).write_text("somebody else's\n")
    with pytest.raises(CorruptionError) as caught:
        make_log(tmp_path).open()
    assert caught.value.name == "PUBLISHED_FILE_DIFFERS"
    assert (tmp_path / name).read_text() == "somebody else's\n"


def test_staged_file_of_another_size_is_not_committed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    staging = log.begin(0)
    (staging / "f").write_text("a\n")
    for name, size in (("f", 3), ("missing", 2)):
        with pytest.raises(CorruptionError) as caught:
            log.commit(0, staging, [StagedFile(name=name, rows=1, bytes=size)])
        assert caught.value.name == "STAGED_FILE_DIFFERS"
    assert not log.is_committed(0)


# Misuse


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../b", "", "."])
def test_staged_names_stay_inside(tmp_path: Path, name: str) -> None:
    log = opened(tmp_path)
    with pytest.raises(UsageError) as caught:
        log.commit(0, log.begin(0), [StagedFile(name=name, rows=1, bytes=1)])
    assert caught.value.name == "STAGED_NAME_OUTSIDE"


def test_staging_of_another_epoch_or_directory(tmp_path: Path) -> None:
    log = opened(tmp_path)
    staging = log.begin(1)
    for wrong in (staging, tmp_path, tmp_path / "main-0-ab"):
        with pytest.raises(UsageError) as caught:
            log.commit(0, wrong, [])
        assert caught.value.name == "STAGING_OF_ANOTHER_EPOCH"


def test_use_before_open(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    with pytest.raises(UsageError, match="SINK_LOG_NOT_OPEN"):
        log.begin(0)
    assert not log.is_committed(0)
    assert log.committed_epochs() == []


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"file_format": "csv"}, SettingsError),
        ({"job_name": "../x"}, JobDefinitionError),
        ({"sink_uid": "a/b"}, JobDefinitionError),
        ({"timeline": ""}, JobDefinitionError),
    ],
)
def test_bad_names_are_refused(
    tmp_path: Path, changes: dict[str, str], kind: type[HoldfastError]
) -> None:
    with pytest.raises(kind):
        make_log(tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem):
        make_log(tmp_path / "file" / "out").open()
