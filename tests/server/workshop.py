"""A real server in this process, on a real port, with a real registry; and something in it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from fastapi import FastAPI

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.record import EpochRecord, EpochStatus, SinkResult, StateSize
from holdfast.client import Client, models
from holdfast.control.registry import JobRow, Registry, RunState
from holdfast.drill.waiting import wait
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.savepoint.store import Savepoint
from holdfast.server.access.guard import Access
from holdfast.server.access.roles import Role
from holdfast.server.app import access_for, create_app
from holdfast.server.connections import Connections
from holdfast.server.listening import Listening
from holdfast.server.run import server_config
from holdfast.server.service import Service
from holdfast.settings import load_settings
from holdfast.storage.files import write_json

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
APP = 'import holdfast as hf\njob = hf.Job("wiki", parallelism=2)\n'
IDENTITY = JobIdentity(
    job_id="a1",
    name="wiki",
    parallelism=2,
    key_groups=64,
    operators={
        "sum": {
            "kind": "process",
            "keys": [["user", "string"]],
            "variables": {"total": "value bigint"},
            "detail": "",
        }
    },
    sources=("edits",),
    edges=(("edits", "sum"), ("sum", "out")),
)


def epoch(number: int, attempt: int = 1, **fields: Any) -> EpochRecord:
    started = NOW + timedelta(seconds=10 * number)
    defaults: dict[str, Any] = {
        "status": EpochStatus.COMMITTED,
        "ended": started + timedelta(seconds=2),
        "phases": {"plan": 0.02, "execute": 1.25, "commit": 0.1},
        "input_rows": 100,
        "output_rows": 90,
        "state": {"sum": StateSize(rows=12, bytes=4096)},
        "sinks": {"out": SinkResult(rows=90, bytes=1024, files=1)},
        "late": {"sum": 1},
        "offsets": {"edits": {"logOffset": number}},
        "lag": {"edits": 7},
        "watermark": NOW,
    }
    return EpochRecord(epoch=number, attempt=attempt, started=started, **(defaults | fields))


def canonical_savepoint(root: Path, name: str, totals: dict[str, int]) -> Savepoint:
    """State as plain columns: it can be looked into without Spark."""
    path = root / "wiki" / name
    state = CanonicalState(path)
    state.rows("sum").mkdir(parents=True)
    table = pa.table({"user": list(totals), "total": list(totals.values())})
    pq.write_table(table, state.rows("sum") / "part-0.parquet")
    files = tuple(
        SavedFile(
            path=str(file.relative_to(path)),
            size=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in sorted(path.rglob("*"))
        if file.is_file()
    )
    manifest = Manifest(
        id=name,
        kind="canonical",
        created=NOW,
        epoch=7,
        identity=IDENTITY,
        sources={"edits": {"logOffset": 3}},
        keys={"sum": len(totals)},
        label=f"label of {name}",
        files=files,
    )
    write_json(path / MANIFEST, manifest.to_dict())
    return Savepoint(path, manifest)


@dataclass
class Live:
    """A server, and what is needed to talk to it."""

    home: Path
    service: Service
    access: Access
    app: FastAPI
    url: str
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def registry(self) -> Registry:
        return self.service.backend.registry

    @property
    def savepoints(self) -> Path:
        return self.service.backend.settings.savepoints

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, role: str | None = "operator", **options: Any) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        headers |= options.pop("headers", {})
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=30, trust_env=False, **options
        )

    def browser(self, role: Role = Role.OPERATOR) -> tuple[httpx.Client, str]:
        """With a session cookie and no token; and the CSRF token of the session."""
        cookie = self.access.sessions.open(self.access.tokens.of_role(role))
        session = self.access.sessions.find(cookie)
        assert session is not None
        client = self.http(None, cookies={self.access.cookie: cookie})
        return client, self.access.sessions.csrf(session.id)

    def client(self, role: str = "operator") -> Client:
        return Client(self.url, self.tokens[role], timeout=30)

    def audit(self) -> list[dict[str, Any]]:
        path = self.service.backend.audit.path
        return (
            [json.loads(line) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def add_job(self, name: str = "wiki", *, epochs: int = 3) -> JobRow:
        """One that has run before, and does not now."""
        directory = JobDirectory(self.service.backend.settings.storage, name)
        directory.logs.mkdir(parents=True)
        directory.save(replace(IDENTITY, name=name, job_id=f"id-{name}"))
        app = self.home / f"{name}.py"
        app.write_text(APP.replace("wiki", name))
        launch = {"app": str(app), "directory": str(self.home)}
        spec = {
            "directory": str(directory.path),
            "launch": launch,
            "checkpoint": {"interval": "10 s", "backend": "heap"},
            "parallelism": 2,
        }
        row = self.registry.register_job(name, spec)
        attempt = self.registry.start_attempt(
            row.id, os.getpid(), socket.gethostname(), NOW, {"from": "nothing", "code": "c1"}
        )
        self.registry.save_epochs(row.id, [epoch(number) for number in range(epochs)])
        self.registry.end_attempt(attempt.id, RunState.SUSPENDED, NOW + timedelta(minutes=1))
        directory.attempt_log(1).write_text("first line\nlast line\n")
        return self.registry.job(name)

    def over(self, operation: models.Operation) -> models.Operation:
        """Once it is."""
        found = operation

        def is_over() -> bool:
            nonlocal found
            found = self.service.operations.get(operation.id)
            return found.is_over

        wait(is_over, f"the end of operation {operation.kind}")
        return found


@contextmanager
def living(home: Path, **settings: Any) -> Iterator[Live]:
    """With an operator's and a viewer's token."""
    home.mkdir(parents=True, exist_ok=True)
    service = Service(load_settings(home=home, **settings))
    access = access_for(service)
    tokens = {
        role.value: access.tokens.create(role.value, role)
        for role in (Role.OPERATOR, Role.VIEWER)
    }
    app = create_app(service, access)
    with serving(app) as url:
        try:
            yield Live(home, service, access, app, url, tokens)
        finally:
            service.close()


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    here = Listening(host="127.0.0.1", port=port, certificate=None, key=None)
    config = server_config(app, here)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    app.state.connections = Connections(server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait(lambda: server.started, "the server")
        yield here.url(port)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
