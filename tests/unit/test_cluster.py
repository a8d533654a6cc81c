"""The local cluster without a JVM: what would be started, its files, whose process it is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.control.cluster.local import LocalCluster, spark_home
from holdfast.control.cluster.master import resolve_master
from holdfast.control.cluster.place import ClusterPlace, write_private
from holdfast.control.cluster.plan import (
    DEFAULTS_FILE,
    LOG_FILE,
    WEB_KEY,
    ClusterSize,
    LaunchPlan,
    conf_files,
    conf_value,
)
from holdfast.control.cluster.processes import (
    MARK_VARIABLE,
    Process,
    end_all,
    family,
    find_process,
    is_alive,
    send,
)
from holdfast.control.cluster.record import (
    ClusterRecord,
    Member,
    load_record,
    save_record,
)
from holdfast.control.cluster.status import token, workers_by_port
from holdfast.engine.entries import STATE_SERVER_LOGGER
from holdfast.errors import (
    ConflictError,
    CorruptionError,
    EnvironmentProblem,
    NotFoundError,
    UsageError,
)
from holdfast.settings import load_settings

NOW = datetime(2026, 11, 17, 5, 0, tzinfo=UTC)


def plan(place: ClusterPlace, **inherited: str) -> LaunchPlan:
    return LaunchPlan(
        java=Path("/usr/bin/java"),
        spark_home=Path("/opt/pyspark"),
        place=place,
        size=ClusterSize(cores=3, memory="2g"),
        inherited=inherited,
    )


@pytest.fixture
def place(tmp_path: Path) -> ClusterPlace:
    return ClusterPlace.of(tmp_path)


class TestPlan:
    def test_the_master_listens_on_loopback(self, place: ClusterPlace) -> None:
        launch = plan(place).master("id/master", port=7000, web_port=7001)
        assert launch.command == (
            *("/usr/bin/java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{place.conf}:/opt/pyspark/jars/*"),
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", "7000", "--webui-port", "7001"),
        )
        assert launch.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
        assert launch.log == place.directory / "logs" / "master.log"

    def test_a_worker_has_its_size_and_its_own_directories(self, place: ClusterPlace) -> None:
        launch = plan(place).worker(
            "worker-2", "id/worker-2", port=7002, master_url="spark://m"
        )
        assert launch.command[6:] == (
            *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"),
            *("--port", "7002", "--webui-port", "0", "--cores", "3", "--memory", "2g"),
            *("--work-dir", str(place.directory / "work" / "worker-2"), "spark://m"),
        )
        scratch = str(place.directory / "scratch" / "worker-2")
        assert launch.environment["SPARK_LOCAL_DIRS"] == scratch
        assert launch.environment[MARK_VARIABLE] == "id/worker-2"

    def test_the_terminal_does_not_decide_what_executors_run(self, place: ClusterPlace) -> None:
        launch = plan(
            place,
            PATH="/bin",
            JAVA_HOME="/java",
            SPARK_HOME="/other",
            SPARK_DAEMON_JAVA_OPTS="-Dx",
            _SPARK_AUTH_SECRET="s",
            PYSPARK_PYTHON="/other/python",
            PYTHONPATH="/other",
            HOLDFAST_FAULTS="epoch.start=kill@1",
        ).master("id/master", port=1, web_port=2)
        assert launch.environment == {
            "PATH": "/bin",
            "JAVA_HOME": "/java",
            "SPARK_HOME": "/opt/pyspark",
            "SPARK_CONF_DIR": str(place.conf),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place.directory / "scratch" / "master"),
            MARK_VARIABLE: "id/master",
        }

    @pytest.mark.parametrize("memory", ["", "1", "100m", "1t", "1.5g", "-1g", "511m", "1 g"])
    def test_memory_that_no_executor_can_use(self, memory: str) -> None:
        with pytest.raises(UsageError) as caught:
            ClusterSize(memory=memory)
        assert caught.value.name == "INVALID_CLUSTER_SIZE"

    def test_spark_is_found_without_importing_it(self) -> None:
        assert (spark_home() / "jars").is_dir()


class TestConfiguration:
    def test_a_secret_of_256_bits_that_is_never_the_same(self) -> None:
        secrets = {
            conf_value(conf_files(ClusterSize())[DEFAULTS_FILE], "spark.authenticate.secret")
            for _ in range(3)
        }
        assert len(secrets) == 3
        assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)

    def test_what_is_closed(self) -> None:
        text = conf_files(ClusterSize(memory="2g"))[DEFAULTS_FILE]
        assert conf_value(text, "spark.authenticate") == "true"
        assert conf_value(text, "spark.master.rest.enabled") == "false"
        assert conf_value(text, "spark.ui.killEnabled") == "false"
        assert conf_value(text, "spark.executor.memory") == "2g"

    def test_the_state_servers_warnings_are_off(self) -> None:
        text = conf_files(ClusterSize())[LOG_FILE]
        assert f"logger.stateserver.name = {STATE_SERVER_LOGGER}\n" in text
        assert "logger.stateserver.level = error\n" in text

    def test_nobody_else_can_read_it(self, place: ClusterPlace) -> None:
        place.make()
        write_private(place.conf / DEFAULTS_FILE, "a b\n")
        modes = [path.stat().st_mode for path in (place.directory, place.conf)]
        assert [stat.S_IMODE(mode) for mode in modes] == [0o700, 0o700]
        assert stat.S_IMODE((place.conf / DEFAULTS_FILE).stat().st_mode) == 0o600

    def test_a_file_that_is_there_is_never_written_into(self, tmp_path: Path) -> None:
        """It might be readable by others, or a link to somewhere else."""
        (tmp_path / "file").touch(mode=0o644)
        with pytest.raises(Exception, match="STORAGE_ERROR"):
            write_private(tmp_path / "file", "secret")

    def test_what_is_left_after_the_end(self, place: ClusterPlace) -> None:
        place.make()
        write_private(place.conf / DEFAULTS_FILE, "")
        for path in (place.log("master"), place.work("worker-1"), place.scratch("worker-1")):
            path.mkdir(parents=True)
        place.clear_running()
        assert {path.name for path in place.directory.iterdir()} == {"logs", "work"}

    def test_the_token_for_the_web_pages_is_a_signed_jws(self) -> None:
        key = conf_value(conf_files(ClusterSize())[DEFAULTS_FILE], WEB_KEY)
        head, body, signature = token(key).split(".")
        assert json.loads(base64.urlsafe_b64decode(head))["alg"] == "HS256"
        digest = hmac.new(
            base64.urlsafe_b64decode(key), f"{head}.{body}".encode(), hashlib.sha256
        ).digest()
        assert base64.urlsafe_b64decode(signature + "=") == digest


# -- processes ----------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a mark that has started another one."""
    code = (
        "import subprocess, sys, time\n"
        # While a process replaces itself, its variables cannot be seen: the child says when.
        "child = 'import time; print(1, flush=True); time.sleep(300)'\n"
        "subprocess.Popen([sys.executable, '-c', child])\n"
        "time.sleep(300)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {MARK_VARIABLE: f"test-{os.getpid()}/x"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def mark() -> str:
    return f"test-{os.getpid()}/x"


class TestProcesses:
    def test_a_process_is_known_by_its_start(self) -> None:
        me = find_process(os.getpid())
        assert me is not None
        assert is_alive(me)
        assert not is_alive(replace(me, started="other"))

    def test_no_process(self) -> None:
        assert find_process(2**22 + 1) is None

    def test_a_recycled_pid_is_not_signalled(self, sleeper: subprocess.Popen[bytes]) -> None:
        other = Process(pid=sleeper.pid, started="boot/1")
        send(other, signal.SIGKILL)
        assert end_all(lambda: family(other, "none"), ask_seconds=1, kill_seconds=1) == []
        assert sleeper.poll() is None

    def test_family_and_end(self, sleeper: subprocess.Popen[bytes]) -> None:
        leader = find_process(sleeper.pid)
        assert leader is not None
        found = family(leader, mark())
        assert len(found) == 2
        assert leader in found
        # The child is still found when its parent has gone; a zombie counts as gone.
        os.kill(sleeper.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while is_alive(leader) and time.monotonic() < deadline:
            time.sleep(0.01)
        (orphan,) = family(leader, mark())
        assert orphan in found
        assert end_all(lambda: family(leader, mark()), ask_seconds=5, kill_seconds=5) == []
        assert not is_alive(orphan)
        # The number of the group must stay taken until the fixture has used it.
        assert sleeper.returncode is None


# -- the record ---------------------------------------------------------------------------


def member(name: str, process: Process | None = None, port: int = 7000) -> Member:
    gone = Process(pid=2**22 + 1, started="boot/1")
    return Member(name=name, process=process or gone, port=port, mark=f"id/{name}", since=NOW)


def record(*workers: Member, master: Member | None = None) -> ClusterRecord:
    return ClusterRecord(
        id="id",
        cores=1,
        memory="1g",
        web_port=7001,
        master=master or member("master"),
        workers=workers,
    )


def myself() -> Process:
    found = find_process(os.getpid())
    assert found is not None
    return found


class TestRecord:
    def test_it_comes_back_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "cluster.json"
        saved = record(member("worker-1"), member("worker-2"))
        save_record(path, saved)
        assert load_record(path) == saved
        assert json.loads(path.read_text())["url"] == "spark://127.0.0.1:7000"

    def test_none(self, tmp_path: Path) -> None:
        assert load_record(tmp_path / "cluster.json") is None

    @pytest.mark.parametrize("text", ["[]", '{"format": 2}'])
    def test_another_format(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "cluster.json").write_text(text)
        with pytest.raises(CorruptionError, match="CLUSTER_FILE_UNREADABLE"):
            load_record(tmp_path / "cluster.json")

    def test_a_worker_comes_back_under_its_name(self) -> None:
        workers = [member(f"worker-{n}", myself()) for n in (1, 3, 10)]
        found = record(*workers, member("worker-2"))
        assert found.free_names(3) == ["worker-2", "worker-4", "worker-5"]
        again = found.with_worker(member("worker-2", myself(), port=7002))
        assert [each.name for each in again.workers] == [
            *("worker-1", "worker-2", "worker-3", "worker-10"),
        ]
        assert again.workers[1].port == 7002


class TestCluster:
    def test_nothing_there(self, tmp_path: Path) -> None:
        cluster = LocalCluster(tmp_path)
        assert cluster.members() == []
        assert cluster.down() == []
        assert list(tmp_path.iterdir()) == []
        for change in (lambda: cluster.add(workers=1), lambda: cluster.kill("worker-1")):
            with pytest.raises(NotFoundError, match="CLUSTER_NOT_RUNNING"):
                change()

    def test_up_is_refused_while_somebody_is_there(self, tmp_path: Path) -> None:
        cluster = LocalCluster(tmp_path)
        cluster.place.make()
        save_record(cluster.place.record, record(member("worker-1", myself())))
        with pytest.raises(ConflictError) as caught:
            cluster.up(workers=1, size=ClusterSize())
        assert caught.value.name == "CLUSTER_IS_RUNNING"
        assert f"worker-1 (process {os.getpid()})" in caught.value.message
        assert "master" not in caught.value.message  # it is gone

    def test_a_worker_that_is_not_there(self, tmp_path: Path) -> None:
        cluster = LocalCluster(tmp_path)
        cluster.place.make()
        master = member("master", myself())
        workers = (member("worker-1"), member("worker-2", myself()))
        save_record(cluster.place.record, record(*workers, master=master))
        for name in ("worker-1", "worker-7", "master"):
            with pytest.raises(NotFoundError) as caught:
                cluster.kill(name)
            assert caught.value.name == "WORKER_NOT_FOUND"
            assert caught.value.fix.startswith("running: worker-2;")

    def test_down_after_a_reboot(self, tmp_path: Path) -> None:
        """All pids are somebody else's by now: nothing is ended, the files go."""
        cluster = LocalCluster(tmp_path)
        cluster.place.make()
        stale = Process(pid=os.getpid(), started="an earlier boot/1")
        save_record(
            cluster.place.record,
            record(member("worker-1", stale), master=member("master", stale)),
        )
        assert [status.state for status in cluster.members()] == ["gone", "gone"]
        assert cluster.down() == []
        assert cluster.record() is None

    def test_down_finds_what_was_started_and_not_written_down(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes]
    ) -> None:
        """As after kill -9 of `up`, between the start of a process and the record of it."""
        cluster = LocalCluster(tmp_path)
        cluster.place.make()
        found = replace(record(), id=mark().partition("/")[0], master=None)
        save_record(cluster.place.record, found)
        leader = find_process(sleeper.pid)
        assert leader is not None
        cluster.down()
        assert not is_alive(leader)
        assert family(leader, mark()) == []

    def test_workers_by_port(self) -> None:
        workers = [{"port": 1, "state": "ALIVE"}, {"port": 2, "state": "DEAD"}]
        assert workers_by_port({"workers": workers}).keys() == {1}
        assert workers_by_port(None) == {}


FAKE_JAVA = """\
#!{python}
import socket, sys, time
if any(argument.endswith(".Worker") for argument in sys.argv):
    sys.exit("this worker does not want to start")
if {master_starts}:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = socket.create_server(("127.0.0.1", port))
    time.sleep(300)
print("this master does not want to start")
"""


class TestHalfStarted:
    """With a `java` that does what the test needs."""

    @pytest.fixture
    def java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home / "bin" / "java"

    @pytest.mark.parametrize("member", ["master", "worker"])
    def test_nothing_is_left(self, java: Path, tmp_path: Path, member: str) -> None:
        text = FAKE_JAVA.format(python=sys.executable, master_starts=member == "worker")
        java.write_text(text)
        java.chmod(0o755)
        cluster = LocalCluster(tmp_path / "home")
        with pytest.raises(EnvironmentProblem) as caught:
            cluster.up(workers=2, size=ClusterSize())
        assert caught.value.name == "CLUSTER_DID_NOT_START"
        assert f"this {member} does not want to start" in caught.value.message
        assert cluster.record() is None
        # The log is there, the secret and the processes are not.
        assert {path.name for path in cluster.place.directory.iterdir()} == {"lock", "logs"}
        assert not [
            entry
            for entry in Path("/proc").glob("[0-9]*/cmdline")
            if str(cluster.place.conf).encode() in read_bytes(entry)
        ]

    def test_workers_that_do_not_come_leave_the_others_alone(
        self, java: Path, tmp_path: Path
    ) -> None:
        java.write_text(FAKE_JAVA.format(python=sys.executable, master_starts=True))
        java.chmod(0o755)
        cluster = LocalCluster(tmp_path / "home")
        cluster.place.make()
        workers = (member("worker-1", myself()),)
        save_record(cluster.place.record, record(*workers, master=member("master", myself())))
        with pytest.raises(EnvironmentProblem, match="CLUSTER_DID_NOT_START"):
            cluster.add(workers=1)
        assert [status.name for status in cluster.members() if status.pid] == [
            *("master", "worker-1"),
        ]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class TestMaster:
    def test_it_is_a_setting(self, tmp_path: Path) -> None:
        assert load_settings(home=tmp_path, master="cluster").values.master == "cluster"

    def test_a_url_is_left_alone(self, tmp_path: Path) -> None:
        found = resolve_master("spark://host:7077", tmp_path)
        assert (found.url, found.conf_dir) == ("spark://host:7077", None)

    def test_the_local_cluster(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError) as caught:
            resolve_master("cluster", tmp_path)
        assert caught.value.name == "CLUSTER_NOT_RUNNING"
        assert "`holdfast cluster up`" in caught.value.fix
        place = ClusterPlace.of(tmp_path)
        place.make()
        save_record(place.record, record(master=member("master", myself())))
        found = resolve_master("cluster", tmp_path)
        assert found.url == "spark://127.0.0.1:7000"
        assert found.conf_dir == str(place.conf)
