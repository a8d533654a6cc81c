"""What can be seen over REST: jobs, their history, savepoints, state, logs, settings."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.record import EpochStatus
from holdfast.control.redaction import HIDDEN, redacted, redacted_text
from holdfast.control.registry import RunState
from holdfast.errors import UserCodeError
from holdfast.server.service.history import _falls_behind
from server.workshop import NOW, Live, canonical_savepoint, epoch, living

EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
CANARY = "CANARY-9f3b1c77"


def test_jobs_are_listed_filtered_and_paged(live: Live) -> None:
    for name in ("wiki", "clicks", "zoo"):
        live.add_job(name)
    with live.http("viewer") as http:
        page = http.get("/api/v1/jobs", params={"limit": 2}).json()
        assert [job["name"] for job in page["items"]] == ["clicks", "wiki"]
        rest = http.get("/api/v1/jobs", params={"limit": 2, "cursor": page["next"]}).json()
        assert [job["name"] for job in rest["items"]] == ["zoo"] and rest["next"] is None
        found = http.get("/api/v1/jobs", params={"contains": "ik"}).json()["items"]
        assert [job["name"] for job in found] == ["wiki"]
        assert http.get("/api/v1/jobs", params={"contains": "%"}).json()["items"] == []
        states = {"state": ["RUNNING", "FAILED"]}
        assert http.get("/api/v1/jobs", params=states).json()["items"] == []
        assert http.get("/api/v1/jobs", params={"state": "NONSENSE"}).status_code == 422


def test_a_job_and_its_history(live: Live) -> None:
    row = live.add_job(epochs=5)
    failed = UserCodeError("PROCESS_FAILED", f"it raised {EVIL}", fix="look at it")
    attempt = live.registry.start_attempt(row.id, 4194305, socket.gethostname(), NOW, {})
    live.registry.save_epochs(row.id, [epoch(5, 2, status=EpochStatus.INTERRUPTED)])
    live.registry.end_attempt(attempt.id, RunState.FAILED, NOW + timedelta(hours=1), failed)
    with live.http("viewer") as http:

        def get(path: str, **wanted: Any) -> Any:
            answer = http.get(f"/api/v1/jobs/wiki{path}", params=wanted)
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == "application/json"
            return answer.json()

        job = get("")
        assert (job["state"], job["epoch"], job["attempt"], job["restarts"]) == (
            "FAILED", 4, 2, 1,
        )  # fmt: skip
        assert job["recent_rows"] == [100] * 5
        assert job["rows_per_second"] == pytest.approx(500 / 42)
        assert (job["lag"], job["running"], job["timeline"]) == (7, False, "t0")
        assert job["error"]["message"] == f"it raised {EVIL}"  # as text, in JSON
        assert [each["number"] for each in get("/attempts")["items"]] == [2, 1]
        [failure] = get("/exceptions")
        assert (failure["error"]["name"], failure["retried"]) == ("PROCESS_FAILED", False)
        assert failure["failure_class"]
        page = get("/epochs", limit=4)
        assert [each["epoch"] for each in page["items"]] == [5, 4, 3, 2]
        assert page["items"][0]["status"] == "INTERRUPTED"
        rest = get("/epochs", limit=4, cursor=page["next"])
        assert [each["epoch"] for each in rest["items"]] == [1, 0] and rest["next"] is None
        assert page["items"][1]["seconds"] == 2 and page["items"][1]["started"].endswith("Z")
        [source] = get("/sources")
        assert (source["source"], source["position"], source["lag"]) == (
            "edits", {"logOffset": 4}, 7,
        )  # fmt: skip
        assert get("/sinks")[0]["rows"] == 540
        assert get("/steps")[0]["rows"] == 12
        marks = get("/watermarks")
        assert marks["late_rows"] == {"sum": 5} and marks["watermark"]
        graph = get("/graph")
        assert graph["edges"] == [["edits", "sum"], ["sum", "out"]]
        assert get("/health")["status"] == "failed"
        assert get("/timelines")[0]["current"] is True
        assert get("/logs", attempt=1)["lines"] == ["first line", "last line"]
        assert get("/logs", attempt=1, lines=1)["lines"] == ["last line"]
        assert http.get("/api/v1/jobs/wiki/logs").json()["name"] == "LOG_NOT_FOUND"
        assert "holdfast_job" in http.get("/api/v1/jobs/wiki/metrics").text
        for name in ("nobody", "wik", row.id[:4]):  # the beginning of an id is not enough
            missing = http.get(f"/api/v1/jobs/{name}")
            assert (missing.status_code, missing.json()["name"]) == (404, "JOB_NOT_FOUND")


def test_an_epoch_that_a_crash_has_kept_from_being_measured(live: Live) -> None:
    row = live.add_job(epochs=5)
    with live.http("viewer") as http:
        before = http.get("/api/v1/jobs/wiki").json()
        unknown = replace(epoch(5, 1), ended=None, state={}, lag={}, input_rows=0)
        live.registry.save_epochs(row.id, [unknown])
        after = http.get("/api/v1/jobs/wiki").json()
    assert (before["epoch"], after["epoch"]) == (4, 5)
    for name in ("rows_per_second", "lag", "state_rows", "state_bytes", "epoch_ended"):
        assert after[name] == before[name], name
    assert after["state_rows"]


def test_a_job_that_falls_behind() -> None:
    def lagging(*lags: int) -> bool:
        return _falls_behind([epoch(n, lag={"edits": lag}) for n, lag in enumerate(lags)])

    assert lagging(0, 200, 400, 600, 800)
    assert not lagging(800, 600, 400, 200, 0)
    assert not lagging(0, 1, 2, 3, 4)
    assert not lagging(0, 900)


def test_savepoints_and_their_lineage(live: Live) -> None:
    live.add_job()
    for number in range(3):
        canonical_savepoint(live.savepoints, f"sp-{number}", {"ann": number})
    (live.savepoints / "wiki" / "broken").mkdir()
    (live.savepoints / "wiki" / "broken" / "manifest.json").write_text("{")
    with live.http() as http:
        page = http.get("/api/v1/savepoints", params={"limit": 2, "job": "wiki"}).json()
        assert [each["id"] for each in page["items"]] == ["sp-2", "sp-1"]
        assert page["unreadable"][0]["name"] == "UNREADABLE_FILE"
        rest = http.get("/api/v1/savepoints", params={"cursor": page["next"]}).json()
        assert [each["id"] for each in rest["items"]] == ["sp-0"]
        assert http.get("/api/v1/jobs/wiki/savepoints").json()["next"] is None
        found = http.get("/api/v1/savepoints/sp-1").json()
        assert found["operators"][0]["uid"] == "sum" and found["label"] == "label of sp-1"
        [tree] = http.get("/api/v1/lineage", params={"job": "wiki"}).json()
        # Taken by a job of another id: they are in a timeline of their own.
        taken = [each["id"] for node in tree["timelines"] for each in node["savepoints"]]
        assert sorted(taken) == ["sp-0", "sp-1", "sp-2"]
        assert http.delete("/api/v1/savepoints/sp-1").status_code == 204
        assert not (live.savepoints / "wiki" / "sp-1").exists()
        assert http.get("/api/v1/savepoints/sp-1").status_code == 404


TRAVERSALS = [
    "%2e%2e", "..%2f..%2fetc", "%2fetc%2fpasswd", "..%5c..%5c", "%252e%252e%252f",
    "wiki%2fsp-1", "sp-1%00", "%00", "sp-1%2f..%2fsp-1", "~root", "file:%2f%2f%2fetc",
    "hdfs:%2f%2fother", "%EF%BC%8E%EF%BC%8E", "sp-1%0a", "latest", "-rf", "%2Fetc", "a" * 200,
    "..;", "....%2f%2f", "%c0%ae%c0%ae", "sp-1%20", "SP-1", "link", "%24(id)", "%3Bls",
]  # fmt: skip


def test_sr08_sr09_nothing_but_savepoints_can_be_named(live: Live, tmp_path: Path) -> None:
    savepoint = canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_bytes((savepoint.path / "manifest.json").read_bytes())
    (live.savepoints / "wiki" / "link").symlink_to(outside)
    (live.savepoints / "other").symlink_to(outside)
    with live.http() as http:
        for name in TRAVERSALS:
            for method, path in (
                ("GET", f"/api/v1/savepoints/{name}"),
                ("DELETE", f"/api/v1/savepoints/{name}"),
                ("GET", f"/api/v1/state/{name}/tables"),
                ("GET", f"/api/v1/jobs/{name}"),
                ("GET", f"/api/v1/jobs/{name}/logs"),
            ):
                answer = http.request(method, path)
                assert answer.status_code in (400, 404, 405, 422), (method, path, answer.text)
                assert "root:" not in answer.text
    assert (outside / "manifest.json").exists()
    assert savepoint.path.exists()


def test_sr09_a_log_that_is_a_link_is_not_read(live: Live, tmp_path: Path) -> None:
    row = live.add_job()
    log = Path(row.spec["directory"]) / "logs" / "attempt-00001.log"
    log.unlink()
    log.symlink_to("/etc/passwd")
    with live.http() as http:
        for path in ("logs", "logs/file"):
            answer = http.get(f"/api/v1/jobs/wiki/{path}")
            assert (answer.status_code, answer.json()["name"]) == (404, "LOG_NOT_FOUND")


class TestState:
    @pytest.fixture(autouse=True)
    def _savepoints(self, live: Live) -> None:
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1, "bob": 2, "eve": 3})
        canonical_savepoint(live.savepoints, "sp-2", {"ann": 1, "bob": 5, "zoe": 9})

    def test_tables_keys_and_rows(self, live: Live) -> None:
        with live.http("viewer") as http:
            [table] = http.get("/api/v1/state/sp-1/tables").json()["tables"]
            assert (table["table"], table["keys"]) == ("sum", 3)
            wanted: dict[str, Any] = {"table": "sum", "key": "bob"}
            found = http.get("/api/v1/state/sp-1/keys", params=wanted).json()
            assert (found["columns"], found["rows"]) == (["user", "total"], [["bob", 2]])
            wanted = {"table": "sum", "key": "nobody"}
            assert http.get("/api/v1/state/sp-1/keys", params=wanted).json()["rows"] == []
            wanted = {"table": "sum", "limit": 2}
            page = http.get("/api/v1/state/sp-1/rows", params=wanted).json()
            assert (page["rows"], page["cut"]) == ([["ann", 1], ["bob", 2]], True)
            wanted = {"table": "sum", "limit": 2, "offset": 2}
            page = http.get("/api/v1/state/sp-1/rows", params=wanted).json()
            assert (page["rows"], page["cut"]) == ([["eve", 3]], False)
            wanted = {"table": 'sum" --', "key": "x"}
            missing = http.get("/api/v1/state/sp-1/keys", params=wanted)
            assert (missing.status_code, missing.json()["name"]) == (404, "STEP_NOT_FOUND")

    def test_queries_and_differences(self, live: Live) -> None:
        with live.http("viewer") as http:
            body = {"sql": 'SELECT sum(total) AS "all" FROM "sum"'}
            assert http.post("/api/v1/state/sp-1/query", json=body).json()["rows"] == [[6]]
            body = {"before": "sp-1", "after": "sp-2"}
            found = http.post("/api/v1/state/diff", json=body).json()
            [table] = found["tables"]
            assert (table["added"], table["removed"], table["changed"]) == (1, 1, 1)
            assert found["same"] is False

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM read_text('/etc/hostname')",
            "SELECT * FROM glob('/etc/*')",
            "SELECT * FROM '/etc/passwd'",
            "COPY (SELECT 1) TO '/tmp/holdfast-written.csv'",
            "COPY \"sum\" TO 'x.csv'",
            "ATTACH '/tmp/x.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "PRAGMA database_list",
            "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/holdfast-written.csv'",
            "SELECT 1; SELECT 2",
            'DROP VIEW "sum"',
            "nonsense",
            "SELECT * FROM read_parquet('/tmp/*.parquet')",
        ],
    )
    def test_sql_reaches_the_state_and_nothing_else(self, live: Live, sql: str) -> None:
        with live.http() as http:
            answer = http.post("/api/v1/state/sp-1/query", json={"sql": sql})
        assert (answer.status_code, answer.json()["name"]) == (400, "SQL_REFUSED"), answer.text
        assert not Path("/tmp/holdfast-written.csv").exists()

    def test_a_query_ends_in_time(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        from holdfast.savepoint.queries import Guard
        from holdfast.server.service import state

        monkeypatch.setattr(state, "Guard", lambda: Guard(seconds=0.3))
        endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
        with live.http() as http:
            answer = http.post("/api/v1/state/sp-1/query", json={"sql": endless})
        assert answer.json()["name"] == "SQL_REFUSED"


class TestSecrets:
    @pytest.mark.parametrize(
        "name",
        [
            "password", "kafka.ssl.keystore.password", "secret", "fs.s3a.access.key",
            "fs.azure.account.key.x", "api-key", "auth-params", "sasl.jaas.config",
            "http-headers", "token", "client.credential", "ssl.keystore.key", "private_key",
            "basic-auth.value", "service-key", "access-key", "sas",
        ],
    )  # fmt: skip
    def test_sr16_by_name(self, name: str) -> None:
        assert redacted({"a": {name: CANARY}}) == {"a": {name: HIDDEN}}

    @pytest.mark.parametrize(
        "text",
        [
            f"jdbc:postgresql://user:{CANARY}@host/db",
            f"https://host/x?sig={CANARY}&a=b",
            f"password={CANARY} rest",
            f"Login with token: '{CANARY}'",
            f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
            f"aws_secret_access_key={CANARY}",
        ],
    )
    def test_sr17_in_free_text(self, text: str) -> None:
        assert CANARY not in redacted_text(text)

    def test_what_is_no_secret_stays(self) -> None:
        for text in ("http://host:80/path?q=1", "key_by user", "12 tokens were read", "a@b.c"):
            assert redacted_text(text) == text
        assert redacted({"key": "user", "keys": ["a"]}) == {"key": "user", "keys": ["a"]}

    def test_sr15_a_canary_is_in_no_answer(self, tmp_path: Path) -> None:
        settings = {
            "registry_url": f"sqlite:///{tmp_path}/r.db",
            "spark": {"hadoop.fs.s3a.secret.key": CANARY, "x.url": f"http://u:{CANARY}@h/"},
        }
        with living(tmp_path / "home", **settings) as live:
            row = live.add_job()
            failed = UserCodeError("PROCESS_FAILED", f"login with password={CANARY} failed")
            attempt = live.registry.start_attempt(row.id, 1, "h", NOW, {"password": CANARY})
            live.registry.end_attempt(attempt.id, RunState.FAILED, NOW, failed)
            log = Path(row.spec["directory"]) / "logs" / "attempt-00002.log"
            log.write_text(f"jdbc:x://user:{CANARY}@host\n")
            with live.http() as http:
                for path in (
                    "config", "server", "jobs", "jobs/wiki", "jobs/wiki/attempts",
                    "jobs/wiki/exceptions", "jobs/wiki/events", "jobs/wiki/logs",
                    "jobs/wiki/logs/file", "jobs/wiki/metrics", "session", "openapi.json",
                ):  # fmt: skip
                    answer = http.get(f"/api/v1/{path}")
                    assert answer.status_code == 200, path
                    assert CANARY not in answer.text, path
                entries = {each["key"]: each for each in http.get("/api/v1/config").json()}
            assert entries["spark.hadoop.fs.s3a.secret.key"]["value"] == HIDDEN
            assert entries["master"] == {
                "key": "master", "value": "local[*]", "origin": "default",
            }  # fmt: skip


def test_the_server_about_itself(live: Live) -> None:
    with live.http("viewer") as http:
        info = http.get("/api/v1/server").json()
        assert info["home"] == str(live.home) and info["spark"].startswith("4.")
        assert http.get("/api/v1/cluster").json() == {"url": None, "members": []}
        assert http.get("/api/v1/session").json()["claims"] == []
        assert "holdfast_build_info" in http.get("/metrics").text
    with live.http() as http:
        gone = http.post("/api/v1/cluster/workers/worker-1/kill")
        assert (gone.status_code, gone.json()["name"]) == (404, "CLUSTER_NOT_RUNNING")
