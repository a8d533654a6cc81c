"""The lease of a job: who may run it, and who no longer may."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.checkpoint.lease import Lease, LeaseFile, held, judge
from holdfast.errors import ConflictError, CorruptionError
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile
from holdfast.storage.files import exclusive_lock, write_json
from holdfast.storage.processes import is_alive, kill_session, session_members, started_at

SECONDS = 0.4
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lease_file(tmp_path: Path) -> LeaseFile:
    return LeaseFile(tmp_path, "job", seconds=SECONDS)


def some_lease(**changes: object) -> Lease:
    fields: dict[str, object] = {
        "epoch": 7,
        "owner": "somebody",
        "host": "elsewhere",
        "pid": 1,
        "process_started": None,
        "beat": 3,
        "renewed": NOW,
    }
    return Lease(**fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lease", "lives", "age", "expected"),
    [
        (None, False, 0, "free"),
        (some_lease(owner=""), True, 0, "free"),
        (some_lease(host="here"), False, 0, "free"),
        (some_lease(host="here"), True, 0, "held"),
        (some_lease(host="here"), True, 11, "stale"),
        (some_lease(), False, 10, "held"),
        (some_lease(), False, 11, "stale"),
        (some_lease(), True, -86_400, "held"),
    ],
)
def test_judgement(lease: Lease | None, lives: bool, age: float, expected: str) -> None:
    now = NOW + timedelta(seconds=age)
    assert judge(lease, here="here", owner_lives=lives, now=now, seconds=10) == expected


def test_second_owner_is_refused_and_told_who_it_is(tmp_path: Path) -> None:
    first, second = lease_file(tmp_path), lease_file(tmp_path)
    lease = first.acquire()
    with pytest.raises(ConflictError, match=r"JOB_IS_RUNNING.*process \d+ on "):
        second.acquire()
    first.release(lease)
    assert second.acquire().epoch == lease.epoch + 1


def test_a_living_owner_is_replaced_if_that_is_asked_for(tmp_path: Path) -> None:
    first, second = lease_file(tmp_path), lease_file(tmp_path)
    lease = first.acquire()
    assert first.taken_from(lease) is None
    with pytest.raises(ConflictError, match="JOB_IS_RUNNING") as refused:
        second.acquire()
    assert "--take-over" in refused.value.fix
    taken = second.acquire(take_over=True)
    assert taken.epoch == lease.epoch + 1
    with pytest.raises(ConflictError, match="LEASE_LOST"):
        first.renew(lease)
    fenced = first.taken_from(lease)
    assert fenced is not None
    assert fenced.name == "FENCED"
    assert first.is_past(lease.epoch)
    assert second.renew(taken).owner == taken.owner


def test_the_fence_only_grows(tmp_path: Path) -> None:
    file = lease_file(tmp_path)
    lease = file.acquire()
    epochs = [lease.epoch]
    for _ in range(3):
        lease = file.next_attempt(lease, session=5)
        epochs.append(lease.epoch)
    assert epochs == [1, 2, 3, 4]
    file.release(lease)
    assert lease_file(tmp_path).acquire().epoch == 5


def test_who_was_replaced_can_see_it(tmp_path: Path) -> None:
    file = lease_file(tmp_path)
    assert not file.is_past(0)
    lease = file.acquire()
    assert not file.is_past(lease.epoch)
    file.release(file.renew(lease))
    assert not file.is_past(lease.epoch)
    lease_file(tmp_path).acquire()
    assert file.is_past(lease.epoch)


def test_owner_that_died_is_replaced_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from holdfast.checkpoint.lease import LeaseFile\n"
        "f = LeaseFile(Path(sys.argv[1]), 'job'); f.next_attempt(f.acquire(), session=99)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    waited: list[Lease] = []
    lease = lease_file(tmp_path).acquire(waited.append)
    assert (waited, lease.epoch) == ([], 3)
    # What the dead one had started is for the new owner to end.
    assert lease.session == 99


def test_silent_owner_loses_its_lease_and_finds_out(tmp_path: Path) -> None:
    asleep, awake = lease_file(tmp_path), lease_file(tmp_path)
    old = asleep.acquire()
    write_json(
        tmp_path / "lease.json",
        old.to_dict() | {"renewed": (NOW - timedelta(days=1)).isoformat()},
    )
    waited: list[Lease] = []
    new = awake.acquire(waited.append)
    assert [lease.owner for lease in waited] == [old.owner]
    assert new.epoch == old.epoch + 1
    for call in (asleep.renew, asleep.next_attempt, asleep.release):
        with pytest.raises(ConflictError, match=r"LEASE_LOST.*taken over by process"):
            call(old)
    assert awake.renew(new).epoch == new.epoch


def test_owner_that_only_looks_stale_keeps_its_lease(tmp_path: Path) -> None:
    """Clocks differ: a lease that is renewed while it is watched is alive."""
    owner, other = lease_file(tmp_path), lease_file(tmp_path)
    lease = owner.acquire()
    past = (NOW - timedelta(days=1)).isoformat()
    write_json(tmp_path / "lease.json", lease.to_dict() | {"renewed": past})

    def renew_meanwhile(_: Lease) -> None:
        owner.renew(lease)

    with pytest.raises(ConflictError, match="JOB_IS_RUNNING"):
        other.acquire(renew_meanwhile)
    owner.renew(lease)


def test_held_in_this_process(tmp_path: Path) -> None:
    with held(lease_file(tmp_path)) as lease:
        assert lease.host == socket.gethostname()
        with pytest.raises(ConflictError, match="JOB_IS_RUNNING"):
            lease_file(tmp_path).acquire()
    lease_file(tmp_path).acquire()


@pytest.mark.parametrize("content", [{}, {"format": 2}, [], {"format": 1, "epoch": 3}])
def test_odd_file(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "lease.json", content)
    with pytest.raises(CorruptionError, match="LEASE_UNREADABLE"):
        lease_file(tmp_path).acquire()


def test_what_a_replaced_driver_must_not_do_is_refused(tmp_path: Path) -> None:
    file = lease_file(tmp_path)
    lease = file.next_attempt(file.acquire())
    # Whoever would take over has to wait until it is done.
    with (
        pytest.raises(ConflictError, match="LOCKED"),
        file.not_past(lease.epoch),
        exclusive_lock(tmp_path / "lock", timeout=0),
    ):
        pytest.fail("taken meanwhile")
    file.next_attempt(lease)
    with pytest.raises(ConflictError, match="FENCED"), file.not_past(lease.epoch):
        pytest.fail("done all the same")


# -- the fence at a sink ------------------------------------------------------------------


def sink(tmp_path: Path, fence: int) -> FileSinkLog:
    return FileSinkLog(
        tmp_path / "out",
        job_id="id",
        job_name="job",
        sink_uid="out",
        file_format="jsonl",
        timeline="t0",
        fence=fence,
    )


def staged(log: FileSinkLog, epoch: int) -> tuple[Path, list[StagedFile]]:
    staging = log.begin(epoch)
    (staging / "rows").write_bytes(b"{}\n")
    return staging, [StagedFile(name="rows", rows=1, bytes=3)]


def test_older_attempt_commits_nothing_once_a_newer_has_come(tmp_path: Path) -> None:
    zombie, successor = sink(tmp_path, 1), sink(tmp_path, 2)
    zombie.open()
    before = staged(zombie, 5)
    successor.open()
    # An epoch that it had begun, and one that it begins only now.
    for epoch, (staging, files) in ((5, before), (6, staged(zombie, 6))):
        with pytest.raises(ConflictError, match="FENCED"):
            zombie.commit(epoch, staging, files)
    with pytest.raises(ConflictError, match="FENCED"):
        sink(tmp_path, 1).open()
    assert successor.committed_epochs() == []
    assert successor.commit(5, *staged(successor, 5)).rows == 1


# -- processes ----------------------------------------------------------------------------


def test_a_process_is_its_pid_and_its_start() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    started = started_at(child.pid)
    assert started is not None
    assert is_alive(child.pid, started)
    assert not is_alive(child.pid, started - 1)
    assert session_members(child.pid) == [child.pid]
    assert kill_session(child.pid)
    # Dead, though nobody has waited for it yet.
    assert not is_alive(child.pid, started)
    child.wait()
    assert started_at(child.pid) is None
