"""The commands around a job, as a user types them."""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from e2e.drivers import Home
from holdfast.demo.place import JOB, JOB_FILE
from holdfast.demo.proof import prove
from holdfast.drill.edits import Edits
from holdfast.drill.visible import half_visible
from holdfast.storage.processes import session_members


def listening_addresses(session: int) -> set[str]:
    found = set()
    for pid in session_members(session):
        try:
            connections = psutil.Process(pid).net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        found |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    return found


@pytest.mark.timeout(400)
def test_a_job_from_start_to_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    edits = Edits(tmp_path / "edits")
    edits.send(4)
    with home.driver(JOB_FILE) as driver:
        driver.wait_for_epochs(1)
        # While it runs: the history is there, a second driver is not let in.
        (epoch, *_) = home.json("checkpoints", JOB)
        assert epoch["status"] == "COMMITTED"
        assert epoch["input_rows"] == edits.sent
        (row,) = home.json("ps")
        assert (row["state"], row["alive"], row["attempt"]) == ("RUNNING", True, 1)
        second = home.call("run", str(JOB_FILE))
        assert second.returncode == 4
        assert f"JOB_IS_RUNNING: job '{JOB}' is being run by process" in second.stderr
        # Nor with a registry of its own: the lease lies beside the state.
        other = f"sqlite:///{tmp_path / 'home' / 'other.db'}"
        third = home.call("run", str(JOB_FILE), HOLDFAST_REGISTRY_URL=other)
        assert third.returncode == 4
        assert f"JOB_IS_RUNNING: job '{JOB}' is being run by process" in third.stderr
        assert all(
            ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
            for address in listening_addresses(driver.process.pid)
        )
        os.killpg(driver.process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        assert driver.end() == 0
        assert driver.events("ended") == [{"event": "ended", "state": "SUSPENDED"}]
    edits.send(3)
    done = home.call("run", str(JOB_FILE), "--available-now")
    assert done.returncode == 0, done.stderr
    assert "attempt 2, resumed from its last checkpoint" in done.stdout
    assert "guarantee   exactly once, end to end" in done.stdout
    assert "keeps every key that it has ever seen: no TTL" in done.stdout
    assert "FINISHED: 1 epochs, 450 rows" in done.stdout
    assert prove(tmp_path / "edits", tmp_path / "balances", edits.sent).holds
    # After it is gone: the same history.
    table = home.call("checkpoints", JOB).stdout
    assert "BY PHASE" in table
    assert table.count("COMMITTED") == 2
    assert "FINISHED" in home.call("show", JOB).stdout
    # Everything lies under the home directory and the job's own paths.
    assert {path.name for path in tmp_path.iterdir()} == {
        *("home", "edits", "balances", "events.jsonl", "stderr.log"),
    }


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("full", ["balances", "home/jobs", "home"])
def test_full_disk(tmp_path: Path, full: str) -> None:
    """The disk of the sink, the checkpoint, the registry: an error, and nothing is lost."""
    home = Home(tmp_path)
    edits = Edits(tmp_path / "edits")
    with small_disk(tmp_path / full, "8m"):
        edits.send(4)
        assert home.call("run", str(JOB_FILE), "--available-now").returncode == 0
        edits.send(4)
        filler = tmp_path / full / "filler"
        left = shutil.disk_usage(filler.parent).free
        with filler.open("wb") as file:
            file.write(b"x" * (left - 4096))
        failed = home.call("run", str(JOB_FILE), "--available-now")
        assert failed.returncode == 6, failed.stderr
        assert "DISK_FULL" in failed.stderr
        assert "Fix: " in failed.stderr
        assert str(tmp_path / full) in failed.stderr
        filler.unlink()
        assert half_visible(tmp_path / "balances") == ()
        done = home.call("run", str(JOB_FILE), "--available-now")
        assert done.returncode == 0, done.stderr
        assert prove(tmp_path / "edits", tmp_path / "balances", edits.sent).holds


def test_missing_java(tmp_path: Path) -> None:
    home = Home(tmp_path)
    failed = home.call("run", str(JOB_FILE), JAVA_HOME=str(tmp_path / "nowhere"))
    assert failed.returncode == 6
    assert "JAVA_NOT_FOUND: JAVA_HOME is" in failed.stderr
    assert "Fix: set JAVA_HOME" in failed.stderr
    assert home.json("ps") == []
