"""Who gets in, and what they may do. The numbers are those of the security requirements."""

from __future__ import annotations

import asyncio
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount

from holdfast.server.access.guard import CSRF_HEADER, PUBLIC, Guard
from holdfast.server.access.roles import Role
from holdfast.server.access.tokens import TokenFile, digest
from holdfast.server.routes.common import ROLE_MARK
from server.workshop import Live

SAVEPOINT = "/api/v1/jobs/wiki/savepoints"


def routes(live: Live) -> Iterator[tuple[str, str, BaseRoute]]:
    """Every method of every route, with something in place of its parameters."""
    for route in flat(live.app.routes):
        assert not isinstance(route, Mount), "say here how a mounted application is guarded"
        path = re.sub(r"\{(\w+)[^}]*\}", lambda name: FILLED.get(name[1], "x"), route.path)  # type: ignore[attr-defined]
        for method in sorted(getattr(route, "methods", None) or ["GET"]):
            yield method, path, route


def flat(found: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in found:
        router = getattr(route, "original_router", None)
        if router is None:
            yield route
        else:
            yield from flat(router.routes)


FILLED = {"operation": "0" * 16, "worker": "worker-1", "job": "wiki", "savepoint": "sp-1"}


class TestEveryRoute:
    def test_sr03_nothing_answers_without_a_login(self, live: Live) -> None:
        with live.http(None) as http:
            seen = 0
            for method, path, _ in routes(live):
                if path in PUBLIC:
                    continue
                answer = http.request(method, path)
                assert answer.status_code == 401, (method, path, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
                if method != "HEAD":
                    assert answer.json()["name"] == "LOGIN_REQUIRED"
                seen += 1
            assert seen > 50
            for path in ("/nowhere", "/api/v1/nowhere", "/static/x.js", "/docs"):
                assert http.get(path).status_code == 401

    def test_sr03_what_is_open_tells_nothing(self, live: Live) -> None:
        with live.http(None) as http:
            assert {path for _, path, _ in routes(live)} >= PUBLIC
            for path in ("/livez", "/readyz"):
                assert http.get(path).text == "ok\n"
            assert http.get("/login").headers["content-type"].startswith("text/html")

    def test_sr03_a_route_without_a_role_is_noticed(self, live: Live) -> None:
        without = {
            path
            for _, path, route in routes(live)
            if isinstance(route, APIRoute) and ROLE_MARK not in (route.openapi_extra or {})
        }
        assert without == set(PUBLIC)

    def test_sr05b_roles_by_route(self, live: Live) -> None:
        """What takes an operator is refused to a viewer, before anything else is looked at."""
        live.add_job()
        refused, seen = set(), set()
        with live.http("viewer") as http:
            for method, path, route in routes(live):
                mark = (getattr(route, "openapi_extra", None) or {}).get(ROLE_MARK)
                if mark is None or path == "/api/v1/events":
                    continue
                answer = http.request(method, path, json={} if method == "POST" else None)
                seen.add(path)
                if answer.status_code == 403:
                    assert answer.json()["name"] == "ROLE_TOO_WEAK"
                    refused.add((method, path))
                assert (answer.status_code == 403) == (mark == "operator"), (method, path)
        changing = {
            (method, path)
            for method, path, _ in routes(live)
            if method in ("POST", "DELETE", "PUT", "PATCH") and path not in PUBLIC
        }
        reading_posts = {
            ("POST", "/api/v1/state/x/query"),
            ("POST", "/api/v1/state/diff"),
            ("POST", "/api/v1/logout"),
        }
        assert refused == changing - reading_posts
        assert len(seen) > 40

    def test_sr05_reading_changes_nothing(self, live: Live) -> None:
        live.add_job()

        def everything() -> Any:
            tables = live.registry.jobs(), live.service.backend.operations.newest()
            files = {
                path: path.stat().st_mtime_ns
                for path in live.home.rglob("*")
                if path.is_file() and "registry.db" not in path.name
            }
            return tables, files

        before = everything()
        with live.http() as http:
            for method, path, _ in routes(live):
                if method in ("GET", "HEAD") and path not in ("/api/v1/events", "/login"):
                    http.request(method, path)
        assert everything() == before


class TestTokens:
    def test_sr02_only_a_hash_is_kept_and_only_for_the_owner(self, live: Live) -> None:
        file = live.access.tokens.path
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        token = live.tokens["operator"]
        assert len(token) > 40
        everything = [path.read_bytes() for path in live.home.rglob("*") if path.is_file()]
        assert not any(token.encode() in content for content in everything)
        assert digest(token) in file.read_text()
        for secret in ("session.key", "audit.jsonl"):
            found = file.with_name(secret)
            assert not found.exists() or stat.S_IMODE(found.stat().st_mode) == 0o600

    @pytest.mark.parametrize("token", ["x", "hf_", "Bearer", "hf_" + "a" * 43])
    def test_sr02_a_wrong_token_is_none(self, live: Live, token: str) -> None:
        with live.http(None, headers={"Authorization": f"Bearer {token}"}) as http:
            assert http.get("/api/v1/jobs").status_code == 401

    def test_sr28_a_rotated_token_and_its_sessions_are_dead(self, live: Live) -> None:
        browser, _ = live.browser()
        with browser, live.http() as http:
            assert http.get("/api/v1/jobs").status_code == 200
            assert browser.get("/api/v1/jobs").status_code == 200
            # By another process; a server reads its tokens again on SIGHUP.
            new = TokenFile(live.access.tokens.path.parent).rotate("operator")
            live.access.tokens.reload()
            assert http.get("/api/v1/jobs").status_code == 401
            assert browser.get("/api/v1/jobs").status_code == 401
            headers = {"Authorization": f"Bearer {new}"}
            assert http.get("/api/v1/jobs", headers=headers).status_code == 200

    def test_sr05c_many_wrong_tokens_have_to_wait(self, live: Live) -> None:
        with live.http(None) as http:
            answers = [
                http.get("/api/v1/jobs", headers={"Authorization": f"Bearer hf_{n:043d}"})
                for n in range(100)
            ]
            assert {answer.status_code for answer in answers[:20]} == {401}
            assert {answer.status_code for answer in answers[20:]} == {429}
            assert int(answers[-1].headers["retry-after"]) > 0
            assert http.post("/api/v1/login", json={"token": "wrong"}).status_code == 429
            # Nobody can be kept out by that, and probes go on.
            assert http.get("/livez").status_code == 200
            with live.http() as operator:
                assert operator.get("/api/v1/jobs").status_code == 200
        assert len([line for line in live.audit() if line["outcome"] == "refused"]) == 20


class TestSessions:
    def test_sr27_a_link_works_once_and_is_gone_from_the_address(self, live: Live) -> None:
        with live.http() as http:
            link = http.post("/api/v1/login-links", json={"role": "viewer"}).json()["url"]
        with live.http(None) as browser:
            first = browser.get(link)
            assert first.status_code == 303
            assert first.headers["location"] == "/"
            assert first.headers["referrer-policy"] == "no-referrer"
            cookie = first.headers["set-cookie"].lower()
            assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
            who = browser.get("/api/v1/whoami").json()
            assert (who["name"], who["role"]) == ("viewer", "viewer")
        with live.http(None) as other:
            assert other.get(link).status_code == 401

    def test_a_token_is_exchanged_for_a_session(self, live: Live) -> None:
        with live.http(None) as browser:
            body = {"token": live.tokens["operator"]}
            assert browser.post("/api/v1/login", json=body).status_code == 204
            csrf = browser.get("/api/v1/whoami").json()["csrf"]
            assert (
                browser.post("/api/v1/logout", headers={CSRF_HEADER: csrf}).status_code == 204
            )
            assert browser.get("/api/v1/whoami").status_code == 401

    @pytest.mark.parametrize("change", ["x", ".", "a.b", "e30.AAAA"])
    def test_a_session_that_somebody_made_up_is_none(self, live: Live, change: str) -> None:
        real = live.access.sessions.open(live.access.tokens.of_role(Role.OPERATOR))
        for cookie in (change, change + real, real[:-2] + "xx"):
            with live.http(None, cookies={"holdfast_session": cookie}) as http:
                assert http.get("/api/v1/jobs").status_code == 401

    def test_sessions_outlive_the_server(self, live: Live) -> None:
        from holdfast.server.access.sessions import Sessions

        cookie = live.access.sessions.open(live.access.tokens.of_role(Role.VIEWER))
        folder = live.access.tokens.path.parent
        again = Sessions(folder, TokenFile(folder))
        found = again.find(cookie)
        assert found is not None and found.token.id == "viewer"

    def test_under_tls_the_cookie_is_for_tls_only(self, live: Live) -> None:
        from dataclasses import replace

        live.app.state.access = replace(live.access, tls=True)
        with live.http(None) as http:
            answer = http.post("/api/v1/login", json={"token": live.tokens["viewer"]})
        assert answer.headers["set-cookie"].startswith("__Host-holdfast_session=")
        assert "secure" in answer.headers["set-cookie"].lower()


class TestForeignPages:
    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "evil@127.0.0.1",
            "",
            "[::2]",
            "127.0.0.2",
        ],
    )
    def test_sr05_a_name_that_is_not_ours(self, live: Live, host: str) -> None:
        with live.http(headers={"Host": host}) as http:
            for path in ("/api/v1/jobs", "/livez", "/login"):
                answer = http.get(path)
                assert answer.status_code == 421, host

    @pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1:{}", "LOCALHOST", "[::1]:{}"])
    def test_names_that_are_ours(self, live: Live, host: str) -> None:
        with live.http(headers={"Host": host.format(live.port)}) as http:
            assert http.get("/api/v1/jobs").status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_sr05_a_change_from_another_site(self, live: Live, headers: dict[str, str]) -> None:
        live.add_job()
        browser, csrf = live.browser()
        with browser:
            answer = browser.post(SAVEPOINT, json={}, headers=headers | {CSRF_HEADER: csrf})
        assert (answer.status_code, answer.json()["name"]) == (403, "FOREIGN_ORIGIN")
        assert live.service.operations.page().items == []

    @pytest.mark.parametrize("csrf", [None, "", "wrong"])
    def test_sr05_a_session_alone_changes_nothing(self, live: Live, csrf: str | None) -> None:
        browser, _ = live.browser()
        headers = {"Origin": live.url} | ({} if csrf is None else {CSRF_HEADER: csrf})
        with browser:
            answer = browser.post(SAVEPOINT, json={}, headers=headers)
        assert (answer.status_code, answer.json()["name"]) == (403, "CSRF_TOKEN_WRONG")

    def test_sr05_the_own_pages_may(self, live: Live) -> None:
        live.add_job()
        browser, csrf = live.browser()
        headers = {"Origin": live.url, "Sec-Fetch-Site": "same-origin", CSRF_HEADER: csrf}
        with browser:
            assert browser.post(SAVEPOINT, json={}, headers=headers).status_code == 202

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
    )
    def test_sr05_only_json_is_read(self, live: Live, kind: str) -> None:
        with live.http(headers={"Content-Type": kind}) as http:
            answer = http.post(SAVEPOINT, content=b'{"label": "x"}')
        assert (answer.status_code, answer.json()["name"]) == (415, "BODY_NOT_JSON")

    def test_sr05_no_other_site_may_read(self, live: Live) -> None:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        with live.http() as http:
            for answer in (
                http.options("/api/v1/jobs", headers=headers),
                http.get("/api/v1/jobs", headers=headers),
            ):
                assert not [
                    name for name in answer.headers if name.startswith("access-control")
                ]


class TestAnswers:
    def test_sr05c_a_body_has_an_end(self, live: Live) -> None:
        large = b'{"label": "' + b"x" * 10 * 1024 * 1024 + b'"}'
        with live.http(headers={"Content-Type": "application/json"}) as http:
            assert http.post(SAVEPOINT, content=large).status_code == 413

            def endless() -> Iterator[bytes]:
                for _ in range(40):
                    yield b" " * 100_000

            try:
                answer = http.post(SAVEPOINT, content=endless())
            except httpx.HTTPError:
                return  # the server hung up, which is right as well
            assert answer.status_code == 413

    def test_sr19_headers_of_every_answer(self, live: Live) -> None:
        live.add_job()
        with live.http() as http:
            for path in ("/api/v1/jobs", "/api/v1/nowhere", "/livez", "/metrics", "/nowhere"):
                headers = http.get(path).headers
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["x-frame-options"] == "DENY"
                assert headers["referrer-policy"] == "no-referrer"
                policy = headers["content-security-policy"]
                assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
                assert "server" not in headers
            assert (
                "script-src" not in http.get("/api/v1/jobs").headers["content-security-policy"]
            )
            log = http.get("/api/v1/jobs/wiki/logs/file")
            assert log.headers["content-type"].startswith("text/plain")
            assert log.headers["content-disposition"].startswith("attachment")

    def test_sr26_an_error_of_the_server_tells_an_id_alone(
        self, live: Live, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The registry is gone: what the database says stays in the log."""
        database = live.service.backend.settings.home / "registry.db"
        live.registry.close()
        database.unlink()
        database.mkdir()
        with live.http() as http:
            answer = http.get("/api/v1/jobs")
            assert answer.status_code == 503
            problem = answer.json()
            assert re.fullmatch("[0-9a-f]{16}", problem["id"])
            assert problem["name"] == "REGISTRY_UNAVAILABLE"
            assert str(live.home) not in answer.text and "Traceback" not in answer.text
            assert problem["id"] in caplog.text and str(live.home) in caplog.text
            assert http.get("/readyz").status_code == 503
            assert http.get("/livez").status_code == 200

    def test_sr22_a_line_of_the_audit_log_is_one_line(self, live: Live) -> None:
        path = '/api/v1/jobs/wiki%0a{"actor": "root"}'
        with live.http(None, headers={"Authorization": "Bearer hf_" + "0" * 43}) as http:
            http.get(path)
        lines = live.audit()
        assert len(lines) == 1 and lines[0]["actor"] is None


class TestConnections:
    def test_sr05c_half_a_request_is_not_waited_for(self, live: Live) -> None:
        live.app.state.connections.patience = 0.2
        with socket.create_connection(("127.0.0.1", live.port), timeout=30) as slow:
            slow.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            with suppress(ConnectionResetError):  # an abrupt end is one as well
                assert slow.recv(100) == b""

    @pytest.mark.parametrize(
        ("origin", "with_cookie", "let_in"),
        [(True, True, True), (False, True, False), (True, False, False)],
    )
    def test_sr03_web_sockets_are_guarded(
        self, live: Live, origin: bool, with_cookie: bool, let_in: bool
    ) -> None:
        reached, sent = [], []

        async def application(scope: Any, receive: Any, send: Any) -> None:
            reached.append(scope["state"]["actor"])

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        cookie = live.access.sessions.open(live.access.tokens.of_role(Role.VIEWER))
        host = f"127.0.0.1:{live.port}"
        headers = {
            "host": host,
            "origin": f"http://{host}" if origin else "http://evil.example",
            "cookie": f"{live.access.cookie}={cookie}" if with_cookie else "",
        }
        scope = {
            "type": "websocket",
            "path": "/_nicegui_ws/socket.io",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(Guard(application, live.access)(scope, receive, send))
        assert bool(reached) is let_in
        assert [each["type"] for each in sent] == ([] if let_in else ["websocket.close"])


class TestAudit:
    def test_sr18_every_change_is_one_line(self, live: Live) -> None:
        live.add_job()
        with live.http() as http, live.http("viewer") as viewer:
            assert live.audit() == []
            http.get("/api/v1/jobs")
            assert live.audit() == []
            accepted = http.post(SAVEPOINT, json={"label": "x"})
            assert accepted.status_code == 202
            [line] = live.audit()
            assert line["actor"] == "operator" and line["role"] == "operator"
            assert line["route"] == f"POST {SAVEPOINT}"
            assert (line["what"], line["job"]) == ("savepoint", "wiki")
            assert line["operation"] == accepted.json()["id"]
            assert (line["outcome"], line["address"]) == ("accepted", "127.0.0.1")
            assert line["at"].endswith("Z")
            http.delete("/api/v1/savepoints/nowhere")
            refused = live.audit()[1]
            assert (refused["what"], refused["outcome"]) == ("delete", "refused")
            assert refused["error"] == "SAVEPOINT_NOT_FOUND"
            assert viewer.post(SAVEPOINT, json={}).status_code == 403
            assert len(live.audit()) == 3
            assert live.audit()[2]["error"] == "ROLE_TOO_WEAK"
