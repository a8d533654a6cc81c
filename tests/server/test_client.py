"""The typed client, and changes as they happen."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.client import Client, models
from holdfast.client.address import ServerAddress
from holdfast.client.requests import SavepointRequest, StopRequest
from holdfast.drill.waiting import wait
from holdfast.errors import (
    AccessError,
    ConflictError,
    EnvironmentProblem,
    NotFoundError,
    UsageError,
)
from server.workshop import Live, canonical_savepoint, epoch


def test_everything_is_typed(live: Live) -> None:
    for name in ("wiki", "zoo"):
        live.add_job(name)
    canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
    with live.client() as client:
        assert [job.name for job in client.jobs()] == ["wiki", "zoo"]
        assert [job.name for job in client.jobs(contains="zo")] == ["zoo"]
        job = client.job("wiki")
        assert isinstance(job, models.JobDetails) and job.created.tzinfo is not None
        assert [each.epoch for each in client.epochs("wiki", limit=2)] == [2, 1]
        assert client.attempts("wiki")[0].number == 1
        assert client.exceptions("wiki") == [] and client.events("wiki") == []
        assert client.timelines("wiki")[0].name == "t0"
        assert client.sources("wiki")[0].lag == 7
        assert client.sinks("wiki")[0].rows == 270
        assert client.steps("wiki")[0].step == "sum"
        assert client.watermarks("wiki").late_rows == {"sum": 3}
        assert client.graph("wiki").edges[0] == ("edits", "sum")
        assert client.health("wiki").status == "stopped"
        assert client.log("wiki", lines=1).lines == ["last line"]
        assert client.savepoints(job="wiki")[0].id == "sp-1"
        assert client.savepoint("sp-1").operators[0].uid == "sum"
        assert client.lineage(job="wiki")[0].job == "wiki"
        assert client.state_tables("sp-1").tables[0].keys == 1
        assert client.state_key("sp-1", "sum", "ann").rows == [["ann", 1]]
        assert client.state_rows("sp-1", "sum").rows == [["ann", 1]]
        assert client.state_query("sp-1", 'SELECT 1 FROM "sum"').rows == [[1]]
        assert client.state_diff("sp-1", "sp-1").same
        assert client.whoami().role == "operator"
        assert client.server().jobs == 2
        assert client.config()[0].key == "home"
        assert client.session().claims == [] and client.cluster().members == []
        assert len(client.apps()) == 2
        assert client.operations() == []


def test_an_operation_is_waited_for(live: Live) -> None:
    live.add_job()
    canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
    with live.client() as client:
        done = client.wait(client.verify_savepoint("sp-1"))
        assert done.state == "SUCCEEDED" and done.result is not None
        version = client.job("wiki").version
        asked = client.ask("wiki", StopRequest(), version=version, key="k")
        with pytest.raises(ConflictError, match="JOB_NOT_RUNNING"):
            client.wait(asked)
        assert client.operations(job="wiki")[0].id == asked.id
        client.delete_savepoint("sp-1")


def test_errors_are_those_of_the_command_line(live: Live) -> None:
    live.add_job()
    with live.client() as client:
        with pytest.raises(NotFoundError, match="JOB_NOT_FOUND") as missing:
            client.job("wikki")
        assert missing.value.fix == "did you mean 'wiki'?"
        assert missing.value.facts["close_matches"] == ["wiki"]
        with pytest.raises(UsageError, match="SQL_REFUSED"):
            canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
            client.state_query("sp-1", "DROP TABLE x")
    with (
        live.client("viewer") as viewer,
        pytest.raises(AccessError, match="ROLE_TOO_WEAK") as no,
    ):
        viewer.ask("wiki", SavepointRequest())
    assert no.value.exit_code == 5
    with (
        Client(live.url, "hf_" + "x" * 43) as stranger,
        pytest.raises(AccessError, match="LOGIN_REQUIRED"),
    ):
        stranger.jobs()
    with (
        Client("http://127.0.0.1:1", "x") as nobody,
        pytest.raises(EnvironmentProblem, match="SERVER_UNREACHABLE"),
    ):
        nobody.jobs()


def test_changes_are_heard_as_they_happen(live: Live) -> None:
    row = live.add_job()
    canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
    heard: list[tuple[str, dict[str, object]]] = []

    def listen() -> None:
        with live.client("viewer") as client:
            for kind, data in client.changes():
                heard.append((kind, data))
                if kind == "operation" and data["state"] == "SUCCEEDED":
                    return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    wait(lambda: heard, "the first word")
    assert heard[0] == ("reset", {})
    watcher = live.app.state.watcher
    wait(lambda: watcher._seen is not None, "the first look")
    live.registry.save_epochs(row.id, [epoch(9)])
    with live.client() as client:
        client.verify_savepoint("sp-1")
    thread.join(30)
    assert not thread.is_alive()
    kinds = {kind for kind, _ in heard}
    assert kinds == {"reset", "epoch", "operation"}
    [one] = [data for kind, data in heard if kind == "epoch"]
    assert one == {"job": "wiki", "attempt": 1, "epoch": 9, "status": "COMMITTED"}
    wait(lambda: not watcher._listeners, "the listener to be forgotten")


def test_the_address_is_its_owners_and_of_a_server_that_lives(tmp_path: Path) -> None:
    import os

    from holdfast.storage.processes import started_at

    assert ServerAddress.find(tmp_path) is None
    with pytest.raises(NotFoundError, match="SERVER_NOT_RUNNING"):
        Client.here(tmp_path)
    address = ServerAddress(
        url="http://127.0.0.1:1",
        token="t",
        pid=os.getpid(),
        process_started=started_at(os.getpid()),
    )
    address.write(tmp_path)
    file = ServerAddress.file(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert ServerAddress.find(tmp_path) == address
    gone = ServerAddress(url="http://x", token="t", pid=4194305, process_started=1)
    gone.write(tmp_path)
    assert ServerAddress.find(tmp_path) is None
    address.remove(tmp_path)  # it is not its own any more
    assert file.exists()
