"""`holdfast server` as a process of its own: how it starts, ends, dies, and is found."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from holdfast.client import Client
from holdfast.client.address import ServerAddress
from holdfast.drill.waiting import wait
from holdfast.errors import UsageError
from holdfast.server.privileges import require_ordinary_user
from server.workshop import canonical_savepoint

COMMAND = (sys.executable, "-P", "-m", "holdfast.cli.main")
SERVER = (*COMMAND, "server", "--allow-root")  # whoever runs the tests


def call(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments, "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def server(home: Path, *options: str, **variables: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The process, and what it says once it listens."""
    process = subprocess.Popen(
        [*SERVER, "--home", str(home), "--port", "0", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_the_life_of_a_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with server(home) as (process, said):
        token, url = said["token"], said["url"]
        wait(lambda: httpx.get(f"{url}/livez", trust_env=False).text == "ok\n", "life")
        # SR-01: nothing listens but on loopback.
        listening = [
            each.laddr.ip
            for each in psutil.Process(process.pid).net_connections()
            if each.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"]
        # SR-21: nothing that it starts gains rights.
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        # SR-02: the token is nobody's to see.
        shown = " ".join(psutil.Process(process.pid).cmdline())
        assert token not in shown and token not in str(psutil.Process(process.pid).environ())
        with Client(url, token) as client:
            assert client.whoami().name == "operator"
        found = json.loads(call(home, "server", "status", "--json").stdout)
        assert found["url"] == url
        link = call(home, "server", "login").stdout.strip()
        assert httpx.get(link, trust_env=False).status_code == 303
        second = call(home, "server", "--allow-root", "--port", "0")
        assert second.returncode == 4 and "SERVER_RUNNING" in second.stderr
        port = url.rpartition(":")[2]
        taken = call(tmp_path / "other", "server", "--allow-root", "--port", port)
        assert taken.returncode == 6 and "SERVER_PORT_TAKEN" in taken.stderr
        # SR-28: by SIGHUP, without a restart.
        new = call(home, "server", "token", "rotate", "operator").stdout.strip()
        with Client(url, new) as client:
            wait(lambda: _works(client), "the new token")
        with Client(url, token) as client:
            assert not _works(client)
        assert call(home, "server", "token", "create", "eye").returncode == 0
        listed = json.loads(call(home, "server", "token", "list", "--json").stdout)
        roles = {each["id"]: each["role"] for each in listed}
        assert roles == {"commands": "operator", "eye": "viewer", "operator": "operator"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert ServerAddress.find(home) is None
    with server(home) as (process, said):
        assert said["token"] is None  # shown once
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    gone = call(home, "server", "status")
    assert gone.returncode == 3 and "SERVER_NOT_RUNNING" in gone.stderr


def _is_running(client: Client, operation: str) -> bool:
    return client.operation(operation).state == "RUNNING"


def _works(client: Client) -> bool:
    try:
        return client.whoami().role == "operator"
    except Exception:
        return False


def test_operations_survive_the_servers_death(tmp_path: Path) -> None:
    """One whose process lives goes on without a server; one that was only noted, and one whose
    process has died with it, are carried out by the next."""
    home = tmp_path / "home"
    gate = tmp_path / "gate"
    canonical_savepoint(home / "savepoints", "sp-1", {"ann": 1})
    with server(home, HOLDFAST_FAULTS=f"tracked.begun=gate:{gate}") as (process, said):
        with Client(said["url"], said["token"]) as client:
            going_on, dying = (client.verify_savepoint("sp-1") for _ in range(2))
            for each in (going_on, dying):
                wait(partial(_is_running, client, each.id), "a start")
        process.kill()
        process.wait()
    [worker] = [
        each
        for each in psutil.process_iter(["cmdline"])
        if dying.id in (each.info["cmdline"] or [])
    ]
    worker.kill()
    gate.touch()  # the other one goes on now, while there is no server
    with server(home) as (_, said), Client.here(home) as client:
        first, second = client.wait(going_on), client.wait(dying)
        assert (first.state, first.tries) == ("SUCCEEDED", 1)
        assert (second.state, second.tries) == ("SUCCEEDED", 2)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--host", "0.0.0.0"], "PUBLIC_WITHOUT_TLS"),
        (["--host", "::"], "PUBLIC_WITHOUT_TLS"),
        (["--host", "192.0.2.1"], "PUBLIC_WITHOUT_TLS"),
        (["--host", "0.0.0.0", "--tls-cert", "nowhere.pem"], "TLS_FILE_UNUSABLE"),
        (["--tls-cert", "{file}"], "TLS_INCOMPLETE"),
        (["--tls-cert", "{file}", "--tls-key", "{file}"], "TLS_FILE_UNUSABLE"),
        (["--name", "not a name"], "INVALID_SETTING"),
    ],
)
def test_sr04_what_is_not_safe_is_refused_before_the_start(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    name: str,
) -> None:
    from holdfast.cli.main import main

    file = tmp_path / "not.pem"
    file.write_text("nothing")
    filled = [each.format(file=file) for each in options]
    assert main(["server", "--home", str(tmp_path / "home"), "--port", "0", *filled]) == 2
    assert name in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_sr21_root_has_to_be_allowed(tmp_path: Path) -> None:
    require_ordinary_user(1000, allow_root=False)
    require_ordinary_user(0, allow_root=True)
    with pytest.raises(UsageError, match="SERVER_AS_ROOT") as refused:
        require_ordinary_user(0, allow_root=False)
    assert refused.value.exit_code == 2 and "--allow-root" in refused.value.fix
    if os.geteuid() == 0:
        called = call(tmp_path / "home", "server", "--port", "0")
        assert called.returncode == 2 and "SERVER_AS_ROOT" in called.stderr
        assert not (tmp_path / "home").exists()


def test_tls(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("no openssl to make a certificate with")
    home = tmp_path / "home"
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with server(home, "--host", "0.0.0.0", *files) as (_, said):
        assert said["url"].startswith("https://127.0.0.1:")
        with Client.here(home) as client:  # knows the server by its certificate
            assert client.whoami().name == "commands"
        with socket.create_connection(
            ("127.0.0.1", int(said["url"].rpartition(":")[2]))
        ) as raw:
            raw.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200" not in raw.recv(100)


def test_sr05c_many_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    """Half a request each, and no more: slow clients cost a socket, not a thread."""
    with server(tmp_path / "home") as (_, said):
        port = int(said["url"].rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        try:
            for each in slow:
                each.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            with Client(said["url"], said["token"]) as client:
                assert client.jobs() == []
        finally:
            for each in slow:
                each.close()


def test_commands_go_through_the_server(tmp_path: Path) -> None:
    """The error is the same; the operation is on record."""
    home = tmp_path / "home"
    with server(home) as (_, said):
        from holdfast.control.registry import Registry

        with Registry(f"sqlite:///{home}/registry.db") as registry:
            directory = home / "jobs" / "wiki"
            registry.register_job("wiki", {"directory": str(directory)})
        refused = call(home, "savepoint", "take", "wiki", "--json")
        assert refused.returncode == 3
        assert json.loads(refused.stderr.splitlines()[-1])["name"] == "NOTHING_TO_SAVE"
        stopped = call(home, "stop", "wiki")
        assert stopped.returncode == 4 and "JOB_NOT_RUNNING" in stopped.stderr
        with Client(said["url"], said["token"]) as client:
            kinds = [(each.kind, each.asked_by) for each in client.operations()]
        assert kinds == [("stop", "commands"), ("savepoint", "commands")]


JOB = """
import holdfast as hf
job = hf.Job({name!r})
"""


@pytest.mark.long
def test_starts_go_through_the_server_where_they_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has no pipeline, so each start fails, whoever tries it; on record is what went
    through the server."""
    jobs, home = tmp_path / "jobs", tmp_path / "home"
    jobs.mkdir()
    (jobs / "wiki.py").write_text(JOB.format(name="wiki"))
    (jobs / "secret.py").write_text("# ${env:WIKI_PASSWORD}\n" + JOB.format(name="secret"))
    (tmp_path / "outside.py").write_text(JOB.format(name="outside"))
    monkeypatch.chdir(jobs)

    def run(app: str, *options: str) -> list[str]:
        """What is on record after a start."""
        done = call(home, "run", app, "--detach", *options)
        assert done.returncode == 2 and "PIPELINE_MISSING" in done.stderr, done.stderr
        with Client.here(home) as client:
            return [f"{each.kind} {each.job}" for each in client.operations()]

    with server(home, "--job-root", str(jobs)):
        assert run("wiki.py") == ["start wiki"]
        two = ["start other", "start wiki"]
        assert run("wiki.py", "--name", "other") == two
        assert run("wiki.py", "--master", "local[1]") == two
        assert run("wiki.py", "--take-over") == two
        assert run(str(tmp_path / "outside.py")) == two
        monkeypatch.setenv("WIKI_PASSWORD", "of the terminal")
        assert run("secret.py") == two
        monkeypatch.delenv("WIKI_PASSWORD")
        three = ["start secret", *two]
        assert run("secret.py") == three
        monkeypatch.chdir(tmp_path)
        assert run("jobs/wiki.py") == three  # in another directory


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['fastapi'] = None; sys.modules['uvicorn'] = None\n"
    code = (
        f"{hide}from holdfast.cli.main import main\nsys.exit(main(['server', '--port', '0']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"HOLDFAST_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 6
    assert "SERVER_PACKAGE_MISSING" in done.stderr
    assert "pip install 'holdfast[server]'" in done.stderr
