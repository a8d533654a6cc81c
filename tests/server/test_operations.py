"""Operations: on record, one at a time, carried out by processes that may die."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.cli.main import main
from holdfast.client.requests import (
    RescaleRequest,
    SavepointRequest,
    StartRequest,
    StopRequest,
    UpgradeRequest,
)
from holdfast.control.session import Budget, Claim, require_room
from holdfast.control.tracked.dispatch import MOST_TRIES, Dispatcher
from holdfast.control.tracked.kinds import KINDS
from holdfast.control.tracked.log import MOST_LINES, OperationLog
from holdfast.control.tracked.record import Operation, OperationState, OperationWorker
from holdfast.drill.waiting import wait
from holdfast.errors import ConflictError, NotFoundError, RunFailedError
from holdfast.server.access.roles import Actor, Role
from holdfast.storage.processes import is_alive, started_at
from server.workshop import Live, canonical_savepoint, living

OPERATOR = Actor(name="operator", role=Role.OPERATOR)
NOBODY = 4194305
"""No process has such a pid."""


def log_of(live: Live) -> OperationLog:
    return live.service.backend.operations


def here(pid: int) -> OperationWorker:
    return OperationWorker(pid=pid, started=started_at(pid), host=socket.gethostname())


def added(live: Live, kind: str = "verify", **parameters: Any) -> Operation:
    """On record, but not handed out to anybody: as if its server had died right then."""
    operation, new = log_of(live).add(
        "wiki", kind, parameters, asked_by="operator", exclusive=KINDS[kind].exclusive
    )
    assert new
    return operation


class TestRest:
    def test_an_operation_is_a_resource(self, live: Live) -> None:
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        with live.http() as http:
            answer = http.post("/api/v1/savepoints/sp-1/verify")
            assert answer.status_code == 202
            location = answer.headers["location"]
            assert location == f"/api/v1/operations/{answer.json()['id']}"
            assert answer.json()["state"] in ("PENDING", "RUNNING")
            wait(lambda: http.get(location).json()["state"] == "SUCCEEDED", "the end")
            found = http.get(location).json()
            assert found["result"]["savepoint"] == "sp-1"
            assert found["progress"] == {"what": "verify", "done": 1, "total": 1}
            assert (found["asked_by"], found["tries"], found["error"]) == ("operator", 1, None)
            assert found["created"] <= found["started"] <= found["ended"]
            assert found["ended"].endswith("Z")

    def test_a_failure_has_the_name_that_the_command_line_shows(self, live: Live) -> None:
        live.add_job()
        asked = live.service.operations.ask(OPERATOR, "wiki", StopRequest())
        found = live.over(asked)
        assert found.state == "FAILED"
        assert found.error is not None
        assert (found.error.name, found.error.kind) == ("JOB_NOT_RUNNING", "ConflictError")
        assert "holdfast resume wiki" in found.error.fix

    def test_asking_twice_with_a_key_is_asking_once(self, live: Live) -> None:
        live.add_job()
        path = "/api/v1/jobs/wiki/savepoints"
        with live.http(headers={"Idempotency-Key": "k1"}) as http:
            first = http.post(path, json={"label": "a"})
            again = http.post(path, json={"label": "a"})
            assert first.status_code == again.status_code == 202
            assert first.json()["id"] == again.json()["id"]
            other = http.post(path, json={"label": "b"})
            assert other.status_code == 409
            assert other.json()["name"] == "IDEMPOTENCY_KEY_REUSED"
        assert len(live.service.operations.page().items) == 1

    def test_a_job_has_one_operation_at_a_time(self, live: Live) -> None:
        live.add_job()
        held = added(live, "savepoint")
        log_of(live).hand_out(held)
        log_of(live).begin(held.id, 1, here(os.getpid()))
        with live.http() as http:
            refused = http.post("/api/v1/jobs/wiki/rescale", json={"parallelism": 4})
            assert refused.status_code == 409
            assert refused.json()["name"] == "OPERATION_RUNNING"
            assert refused.json()["facts"]["operation"] == held.id
            assert http.get("/api/v1/jobs/wiki").json()["operation"] == held.id
        log_of(live).fail(held.id, RunFailedError("X", "x"))
        live.service.operations.ask(OPERATOR, "wiki", SavepointRequest())

    def test_a_change_of_a_job_that_is_another_by_now(self, live: Live) -> None:
        row = live.add_job()
        with live.http() as http:
            looked_at = http.get("/api/v1/jobs/wiki").headers["etag"]
            live.registry.save_epochs(row.id, [])  # epochs are no change
            assert http.get("/api/v1/jobs/wiki").headers["etag"] == looked_at
            live.registry.register_job("wiki", {**row.spec, "parallelism": 3})
            headers = {"If-Match": looked_at}
            refused = http.post("/api/v1/jobs/wiki/stop", json={}, headers=headers)
            assert (refused.status_code, refused.json()["name"]) == (412, "JOB_CHANGED")
            headers = {"If-Match": http.get("/api/v1/jobs/wiki").headers["etag"]}
            answer = http.post("/api/v1/jobs/wiki/stop", json={}, headers=headers)
            assert answer.status_code == 202

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("jobs/wiki/rescale", {"parallelism": 4, "nonsense": 1}),
            ("jobs/wiki/rescale", {}),
            ("jobs/wiki/rescale", {"parallelism": 0}),
            ("jobs/wiki/stop", {"conf": {"spark.jars": "http://evil.example/x.jar"}}),
            ("jobs", {"app": "/x.py", "master": "spark://evil.example"}),
            ("jobs", {"app": "/x.py", "spark": {"spark.driver.extraJavaOptions": "-X"}}),
            ("jobs", {"app": "/x.py", "environment": {"LD_PRELOAD": "x"}}),
            ("jobs/wiki/savepoints", {"label": "a\nb"}),
            ("jobs/wiki/rollback", {"origin": "/etc", "sink": "keep"}),
        ],
    )
    def test_sr13_what_is_not_on_the_list_is_refused(
        self, live: Live, path: str, body: dict[str, Any]
    ) -> None:
        live.add_job()
        with live.http() as http:
            answer = http.post(f"/api/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["name"]) == (422, "REQUEST_INVALID")
        assert live.service.operations.page().items == []

    def test_pages_of_operations(self, live: Live) -> None:
        for _ in range(5):
            log_of(live).fail(added(live).id, RunFailedError("X", "x"))
        with live.http() as http:
            seen, cursor = [], None
            while True:
                wanted = {"limit": 2} | ({"cursor": cursor} if cursor else {})
                page = http.get("/api/v1/operations", params=wanted).json()
                seen += [each["id"] for each in page["items"]]
                cursor = page["next"]
                if cursor is None:
                    break
            assert len(seen) == len(set(seen)) == 5
            for wrong in ("x", "2026-01-01T00:00:00~x", "~"):
                answer = http.get("/api/v1/operations", params={"cursor": wrong})
                assert answer.json()["name"] == "BAD_CURSOR"


class TestDeath:
    def test_what_a_dead_server_has_noted_is_begun_by_the_next(self, live: Live) -> None:
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        operation = added(live, savepoint="sp-1")
        found = live.over(live.service.operations.get(operation.id))
        assert (found.state, found.tries) == ("SUCCEEDED", 1)

    def test_what_a_dead_process_had_begun_goes_on(self, live: Live) -> None:
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        operation = added(live, savepoint="sp-1")
        log_of(live).hand_out(operation)
        log_of(live).begin(operation.id, 1, here(NOBODY))
        found = live.over(live.service.operations.get(operation.id))
        assert (found.state, found.tries) == ("SUCCEEDED", 2)
        assert found.lines[0] == "the process that was at it is gone; it goes on"

    def test_a_process_that_is_killed_is_replaced(
        self, live: Live, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        monkeypatch.setenv("HOLDFAST_FAULTS", "tracked.begun=gate:/nonexistent")
        asked = live.service.savepoints.verify(OPERATOR, "sp-1")
        wait(lambda: log_of(live).get(asked.id).worker is not None, "its process")
        worker = log_of(live).get(asked.id).worker
        assert worker is not None and is_alive(worker.pid, worker.started)
        monkeypatch.delenv("HOLDFAST_FAULTS")
        os.kill(worker.pid, signal.SIGKILL)
        found = live.over(asked)
        assert (found.state, found.tries) == ("SUCCEEDED", 2)

    def test_what_costs_every_process_its_life_is_given_up(
        self, live: Live, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_FAULTS", "tracked.begun=exit")
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        found = live.over(live.service.savepoints.verify(OPERATOR, "sp-1"))
        assert (found.state, found.tries) == ("INTERRUPTED", MOST_TRIES)
        assert found.error is not None
        assert found.error.name == "OPERATION_INTERRUPTED"
        assert found.error.fix.startswith("verify it again.")

    def test_a_process_of_another_machine_is_left_alone(self, live: Live) -> None:
        operation = added(live, savepoint="sp-1")
        log_of(live).hand_out(operation)
        log_of(live).begin(
            operation.id, 1, OperationWorker(pid=1, started=1, host="elsewhere.example")
        )
        Dispatcher(log_of(live), live.service.backend.settings).look_after()
        assert log_of(live).get(operation.id).tries == 1


def hanging(live: Live, monkeypatch: pytest.MonkeyPatch) -> Operation:
    """A savepoint of `wiki` whose process hangs."""
    monkeypatch.setenv("HOLDFAST_FAULTS", "tracked.begun=gate:/nonexistent")
    asked = live.service.operations.ask(OPERATOR, "wiki", SavepointRequest())
    wait(lambda: log_of(live).get(asked.id).worker is not None, "its process")
    monkeypatch.delenv("HOLDFAST_FAULTS")
    return log_of(live).get(asked.id)


class TestCancel:
    def test_its_process_ends_and_the_job_can_have_another(
        self, live: Live, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        live.add_job()
        worker = hanging(live, monkeypatch)
        assert worker.worker is not None
        with live.http() as http:
            path = f"/api/v1/operations/{worker.id}/cancel"
            answer = http.post(path)
            assert (answer.status_code, answer.json()["state"]) == (200, "CANCELLED")
            error = answer.json()["error"]
            assert error["name"] == "OPERATION_CANCELLED"
            assert "The job is SUSPENDED, and does not run." in error["message"]
            assert error["fix"].startswith("take it again.")
            assert "`holdfast resume wiki`" in error["fix"]
            assert not is_alive(worker.worker.pid, worker.worker.started)
            again = http.post(path)
            assert (again.status_code, again.json()) == (200, answer.json())
            assert http.get("/api/v1/jobs/wiki").json()["operation"] is None
        asked = live.service.operations.ask(OPERATOR, "wiki", StopRequest())
        assert live.over(asked).error is not None  # it had its turn
        # The look of the server that came meanwhile has not begun it again.
        live.service.backend.dispatcher.look_after()
        found = log_of(live).get(worker.id)
        assert (found.state, found.tries) == (OperationState.CANCELLED, 1)
        assert found.lines == ("cancel was asked for by operator",)
        lines = [each for each in live.audit() if each["what"] == "cancel operation"]
        assert [(each["operation"], each["job"], each["outcome"]) for each in lines] == [
            (worker.id, "wiki", "accepted")
        ] * 2

    def test_whoever_waits_for_it_is_told(
        self, live: Live, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        live.add_job()
        operation = hanging(live, monkeypatch)
        with live.client() as client:
            cancelled = client.cancel_operation(operation.id)
            assert cancelled.is_over
            with pytest.raises(RunFailedError, match="OPERATION_CANCELLED"):
                client.wait(cancelled)

    def test_one_that_is_over_keeps_its_last_word(self, live: Live) -> None:
        log, operation = log_of(live), added(live)
        log.succeed(operation.id, {"x": 1})
        with live.http() as http:
            refused = http.post(f"/api/v1/operations/{operation.id}/cancel")
            assert (refused.status_code, refused.json()["name"]) == (409, "OPERATION_OVER")
            assert refused.json()["facts"]["state"] == "SUCCEEDED"
            nothing = http.post(f"/api/v1/operations/{'0' * 16}/cancel")
            assert (nothing.status_code, nothing.json()["name"]) == (404, "OPERATION_NOT_FOUND")
        assert log.get(operation.id).state is OperationState.SUCCEEDED

    def test_a_viewer_may_not(self, live: Live) -> None:
        operation = added(live, "savepoint")
        with live.http("viewer") as http:
            refused = http.post(f"/api/v1/operations/{operation.id}/cancel")
        assert (refused.status_code, refused.json()["name"]) == (403, "ROLE_TOO_WEAK")

    def test_from_the_command_line_without_a_server(
        self, live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As the server of the test has no address file, commands find none."""
        live.add_job()
        operation, home = hanging(live, monkeypatch), str(live.home)
        assert main(["operation", "list", "--home", home]) == 0
        assert operation.id in capsys.readouterr().out
        assert main(["operation", "cancel", operation.id, "--home", home]) == 0
        assert "was cancelled. The job is SUSPENDED" in capsys.readouterr().out
        assert main(["operation", "show", operation.id, "--home", home, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["state"], shown["error"]["name"]) == ("CANCELLED", "OPERATION_CANCELLED")
        assert main(["operation", "show", operation.id, "--home", home]) == 0
        assert "Fix: take it again." in capsys.readouterr().out


class TestSurroundings:
    def test_sr12_variables_that_run_code_do_not_get_through(
        self, live: Live, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        live.add_job()
        monkeypatch.setenv("PYTHONSTARTUP", "/nonexistent")
        monkeypatch.setenv("BASH_ENV", "/nonexistent")
        monkeypatch.setenv("WIKI_PASSWORD", "needed")
        operation = hanging(live, monkeypatch)
        assert operation.worker is not None
        found = psutil.Process(operation.worker.pid).environ()
        live.service.operations.cancel(OPERATOR, operation.id)
        assert "PYTHONSTARTUP" not in found and "BASH_ENV" not in found
        assert found["WIKI_PASSWORD"] == "needed"
        assert found["HOLDFAST_STORAGE"] == str(live.service.backend.settings.storage)


class TestLog:
    def test_one_process_gets_it(self, live: Live) -> None:
        log, operation = log_of(live), added(live, "savepoint")
        with pytest.raises(ConflictError, match="OPERATION_RUNNING"):
            added(live, "stop")
        # Held back from the server's own look: it has to be handed out here.
        first = log.hand_out(operation)
        assert first is None or log.hand_out(operation) is None

    def test_the_last_word_stays(self, live: Live) -> None:
        log, operation = log_of(live), added(live)
        log.succeed(operation.id, {"x": 1})
        log.fail(operation.id, RunFailedError("LATE", "a process that had been given up"))
        log.say(operation.id, "late")
        found = log.get(operation.id)
        assert (found.state, found.error, found.lines) == (OperationState.SUCCEEDED, None, ())
        assert log.hand_out(found) is None

    def test_what_is_said_has_an_end(self, live: Live) -> None:
        log, operation = log_of(live), added(live)
        for number in range(MOST_LINES + 5):
            log.say(operation.id, str(number))
        assert log.get(operation.id).lines[0] == "5"

    def test_nothing(self, live: Live) -> None:
        with pytest.raises(NotFoundError, match="OPERATION_NOT_FOUND"):
            log_of(live).get("nothing")


class TestRoom:
    BUDGET = Budget(cores=4, memory=8 * 1024**3)

    def test_who_holds_what_is_said(self) -> None:
        held = [Claim(job="a", cores=2, memory=1), Claim(job="b", cores=1, memory=1)]
        require_room(Claim(job="c", cores=1, memory=1), held, self.BUDGET)
        with pytest.raises(ConflictError, match="SESSION_FULL") as full:
            require_room(Claim(job="c", cores=2, memory=1), held, self.BUDGET)
        assert "a (2 cores), b (1 cores)" in full.value.message
        assert full.value.facts["holders"] == {"a": 2, "b": 1}
        with pytest.raises(ConflictError, match=r"needs 9\.0 GiB, and of 8\.0 GiB"):
            require_room(Claim(job="c", cores=1, memory=9 * 1024**3), [], self.BUDGET)
        # A job that is restarted gives back what it had.
        require_room(Claim(job="a", cores=3, memory=1), held, self.BUDGET)
        require_room(Claim(job="c", cores=99, memory=1), held, Budget(cores=None, memory=None))

    def test_a_start_beyond_it_is_refused_at_once(self, tmp_path: Path) -> None:
        settings = {"session_memory": "5 GiB", "driver_memory": "2g", "master": "local[2]"}
        with living(tmp_path / "home", server_job_roots=[str(tmp_path)], **settings) as live:
            live.add_job()
            for name in ("one", "two"):
                (tmp_path / f"{name}.py").write_text(
                    f'import holdfast\nholdfast.Job("{name}")\n'
                )
            first = StartRequest(app=str(tmp_path / "one.py"), parallelism=2)
            live.service.operations.start(OPERATOR, first)
            with live.http() as http:
                body = {"app": str(tmp_path / "two.py"), "parallelism": 2}
                refused = http.post("/api/v1/jobs", json=body)
            assert (refused.status_code, refused.json()["name"]) == (409, "SESSION_FULL")
            assert list(refused.json()["facts"]["holders"]) == ["one"]


NOT_ALLOWED = [
    "/etc/passwd",
    "{root}/../outside.py",
    "{root}/link.py",
    "{root}/linked/app.py",
    "{root}/sub/../../outside.py",
    "relative.py",
    "file://{root}/app.py",
    "hdfs://other/app.py",
    "{root}/app.txt",
    "{root}",
    "~/app.py",
    "{root}/%2e%2e/outside.py",
    "\\\\host\\share\\app.py",
    "--jars=http://evil.example/x.jar",
    "$(touch /tmp/x).py",
]


class TestFiles:
    def test_sr11_only_files_below_the_roots_are_started(self, tmp_path: Path) -> None:
        root, outside = tmp_path / "root", tmp_path / "outside"
        (root / "sub").mkdir(parents=True)
        outside.mkdir()
        code = 'import holdfast\nholdfast.Job("x")\n'
        for file in (root / "app.py", root / "app.txt", outside / "app.py"):
            file.write_text(code)
        (tmp_path / "outside.py").write_text(code)
        (root / "link.py").symlink_to(outside / "app.py")
        (root / "linked").symlink_to(outside)
        roots = [str(root)]
        with living(tmp_path / "home", server_job_roots=roots) as live, live.http() as http:
            for app in NOT_ALLOWED:
                answer = http.post("/api/v1/jobs", json={"app": app.format(root=root)})
                assert answer.status_code in (400, 404), answer.text
                assert answer.json()["name"] in ("APP_NOT_ALLOWED", "APP_NOT_FOUND")
            assert live.service.operations.page().items == []
            listed = http.get("/api/v1/apps").json()
            assert [each["path"] for each in listed] == [str(root / "app.py")]
            assert listed[0]["jobs"] == ["x"]

    def test_what_a_job_was_started_from_may_be_started_again(self, live: Live) -> None:
        live.add_job()
        app = str(live.home / "wiki.py")
        asked = live.service.operations.plan(OPERATOR, "wiki", RescaleRequest(parallelism=3))
        assert asked.parameters["operation"] == "rescale"
        again = live.service.operations.start(OPERATOR, StartRequest(app=app))
        assert (again.job, again.parameters["directory"]) == ("wiki", str(live.home))
        with pytest.raises(Exception, match="APP_NOT_ALLOWED"):
            request = UpgradeRequest(app=str(live.home / "other.py"))
            live.service.operations.ask(OPERATOR, "wiki", request)

    def test_a_directory_can_be_expected_but_not_chosen(self, live: Live) -> None:
        live.add_job()
        body = {"app": str(live.home / "wiki.py"), "directory": "/etc"}
        fork = {"name": "copy", "directory": "/etc"}
        with live.http() as http:
            for path, asked in (("jobs", body), ("jobs/wiki/forks", fork)):
                refused = http.post(f"/api/v1/{path}", json=asked)
                assert refused.status_code == 409
                assert refused.json()["name"] == "DIRECTORY_DIFFERS"
            here = http.post("/api/v1/jobs", json=body | {"directory": str(live.home)})
            assert here.status_code == 202
            assert here.json()["parameters"]["directory"] == str(live.home)

    def test_which_job_of_a_file_is_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "two.py").write_text('import holdfast as h\nh.Job("a")\nh.Job("b")\n')
        with living(tmp_path / "home", server_job_roots=[str(tmp_path)]) as live:
            with live.http() as http:
                body = {"app": str(tmp_path / "two.py")}
                unclear = http.post("/api/v1/jobs", json=body)
                assert unclear.json()["name"] == "JOB_UNCLEAR"
            asked = live.service.operations.start(
                OPERATOR, StartRequest(app=str(tmp_path / "two.py"), job="b")
            )
            assert asked.job == "b"
