"""The client: a method per thing that the server can do, with typed answers.

    with Client.here() as client:
        operation = client.ask("wiki-diffs", SavepointRequest(label="before the release"))
        print(client.wait(operation).result)

An error of the server is raised as the same :class:`HoldfastError` that the command line would
show.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from httpx_sse import connect_sse
from pydantic import BaseModel, TypeAdapter

from holdfast.client import models, requests
from holdfast.client.address import ServerAddress
from holdfast.errors import EnvironmentProblem, HoldfastError, RunFailedError

Model = TypeVar("Model", bound=BaseModel)
API = "/api/v1"
_POLL_SECONDS = 0.3
_PATHS = {"savepoint": "savepoints", "fork": "forks"}
"""Where the path of an operation is not its name."""


class Client:
    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 300.0,
        ca: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`ca`: a file with the certificate that the server is to be known by."""
        self.url = url
        verify: ssl.SSLContext | bool = True
        if ca is not None:
            verify = ssl.create_default_context(cafile=str(ca))
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout, connect=5.0),
            follow_redirects=False,
            trust_env=False,  # a proxy that the environment names must not see the token
            verify=verify,
            transport=transport,
        )

    @classmethod
    def here(cls, home: Path | None = None) -> Self:
        """Of the server that runs on this machine for this home directory."""
        address = ServerAddress.require(home)
        ca = Path(address.certificate) if address.certificate else None
        return cls(address.url, address.token, ca=ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- jobs -------------------------------------------------------------------------

    def jobs(self, *, contains: str = "", state: str | None = None) -> list[models.JobSummary]:
        """All of them, page by page."""
        wanted = {"contains": contains} | ({"state": state} if state else {})
        return list(self._pages("/jobs", models.JobSummary, wanted))

    def job(self, job: str) -> models.JobDetails:
        return self._get(f"/jobs/{job}", models.JobDetails)

    def attempts(self, job: str) -> list[models.Attempt]:
        return list(self._pages(f"/jobs/{job}/attempts", models.Attempt))

    def exceptions(self, job: str) -> list[models.Failure]:
        return self._list(f"/jobs/{job}/exceptions", models.Failure)

    def epochs(self, job: str, *, limit: int = 50) -> list[models.Epoch]:
        """The newest first."""
        found: list[models.Epoch] = []
        for each in self._pages(f"/jobs/{job}/epochs", models.Epoch):
            if len(found) == limit:
                break
            found.append(each)
        return found

    def events(self, job: str, *, limit: int = 100) -> list[models.Event]:
        return self._list(f"/jobs/{job}/events", models.Event, {"limit": limit})

    def timelines(self, job: str) -> list[models.Timeline]:
        return self._list(f"/jobs/{job}/timelines", models.Timeline)

    def sources(self, job: str) -> list[models.SourceState]:
        return self._list(f"/jobs/{job}/sources", models.SourceState)

    def sinks(self, job: str) -> list[models.SinkState]:
        return self._list(f"/jobs/{job}/sinks", models.SinkState)

    def steps(self, job: str) -> list[models.StepState]:
        return self._list(f"/jobs/{job}/steps", models.StepState)

    def watermarks(self, job: str) -> models.Watermarks:
        return self._get(f"/jobs/{job}/watermarks", models.Watermarks)

    def graph(self, job: str) -> models.Graph:
        return self._get(f"/jobs/{job}/graph", models.Graph)

    def health(self, job: str) -> models.Health:
        return self._get(f"/jobs/{job}/health", models.Health)

    def log(self, job: str, *, attempt: int | None = None, lines: int = 200) -> models.LogTail:
        wanted = {"lines": lines} | ({} if attempt is None else {"attempt": attempt})
        return self._get(f"/jobs/{job}/logs", models.LogTail, wanted)

    # -- operations -------------------------------------------------------------------

    def start(
        self, request: requests.StartRequest, *, key: str | None = None
    ) -> models.Operation:
        return self._ask("/jobs", request, key=key)

    def ask(
        self,
        job: str,
        request: requests.OperationRequest,
        *,
        key: str | None = None,
        version: str | None = None,
    ) -> models.Operation:
        """Begin an operation on a job. `key`: asking again with it is asking once. `version`:
        of the job as it was looked at; refused if it has changed."""
        path = f"/jobs/{job}/{_PATHS.get(request.kind, request.kind)}"
        return self._ask(path, request, key=key, version=version)

    def plan(self, job: str, request: requests.OperationRequest) -> models.Operation:
        """What it would do; the plan is the result of the operation."""
        return self._ask(f"/jobs/{job}/plans/{request.kind}", request)

    def operation(self, operation_id: str) -> models.Operation:
        return self._get(f"/operations/{operation_id}", models.Operation)

    def operations(self, *, job: str | None = None) -> list[models.Operation]:
        wanted = {"job": job} if job else {}
        return list(self._pages("/operations", models.Operation, wanted))

    def cancel_operation(self, operation_id: str) -> models.Operation:
        """End it, and let its job have another one. What it has done so far stays: the error of
        the operation says how the job is now."""
        answer = self._send("POST", f"/operations/{operation_id}/cancel")
        return models.Operation.model_validate(answer.json())

    def follow(
        self, operation: models.Operation, *, timeout: float = 600.0
    ) -> Iterator[models.Operation]:
        """The operation, again and again, until it is over."""
        deadline = time.monotonic() + timeout
        while True:
            operation = self.operation(operation.id)
            yield operation
            if operation.is_over:
                return
            if time.monotonic() > deadline:
                raise RunFailedError(
                    "OPERATION_SLOW",
                    f"operation {operation.id} ({operation.kind} of job {operation.job!r}) is "
                    f"not over after {timeout:g} s; it goes on.",
                    fix="wait longer, or look again later.",
                    operation=operation.id,
                )
            time.sleep(_POLL_SECONDS)

    def wait(self, operation: models.Operation, *, timeout: float = 600.0) -> models.Operation:
        """Until it is over; raises what it failed with."""
        for found in self.follow(operation, timeout=timeout):
            operation = found
        if operation.error is not None:
            raise error_of(operation.error)
        return operation

    def changes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kind, data) as they happen, without end; `reset` first: read anew what you show."""
        with connect_sse(self._http, "GET", f"{API}/events", timeout=None) as source:
            _require(source.response)
            for event in source.iter_sse():
                yield event.event, json.loads(event.data)

    # -- savepoints -------------------------------------------------------------------

    def savepoints(self, *, job: str | None = None) -> list[models.Savepoint]:
        return list(self._pages("/savepoints", models.Savepoint, {"job": job} if job else {}))

    def savepoint(self, savepoint: str) -> models.SavepointDetails:
        return self._get(f"/savepoints/{savepoint}", models.SavepointDetails)

    def verify_savepoint(self, savepoint: str) -> models.Operation:
        return self._ask(f"/savepoints/{savepoint}/verify", None)

    def export_savepoint(self, savepoint: str) -> models.Operation:
        return self._ask(f"/savepoints/{savepoint}/export", None)

    def delete_savepoint(self, savepoint: str) -> None:
        self._send("DELETE", f"/savepoints/{savepoint}")

    def lineage(self, *, job: str | None = None) -> list[models.Tree]:
        return self._list("/lineage", models.Tree, {"job": job} if job else {})

    # -- state ------------------------------------------------------------------------

    def state_tables(self, of: str, *, fresh: bool = False) -> models.StateTables:
        """Of a job, or of a savepoint by its id."""
        return self._get(f"/state/{of}/tables", models.StateTables, {"fresh": fresh})

    def state_key(
        self, of: str, table: str, *key: str, fresh: bool = False
    ) -> models.StateRows:
        wanted = {"table": table, "key": list(key), "fresh": fresh}
        return self._get(f"/state/{of}/keys", models.StateRows, wanted)

    def state_rows(
        self, of: str, table: str, *, offset: int = 0, limit: int = 50, fresh: bool = False
    ) -> models.StateRows:
        wanted = {"table": table, "offset": offset, "limit": limit, "fresh": fresh}
        return self._get(f"/state/{of}/rows", models.StateRows, wanted)

    def state_query(
        self, of: str, sql: str, *, limit: int = 1000, fresh: bool = False
    ) -> models.StateRows:
        body = requests.QueryRequest(sql=sql, limit=limit, fresh=fresh)
        return models.StateRows.model_validate(
            self._send("POST", f"/state/{of}/query", body=body).json()
        )

    def state_diff(
        self, before: str, after: str, *, table: str | None = None, limit: int = 100
    ) -> models.StateDiff:
        body = requests.DiffRequest(before=before, after=after, table=table, limit=limit)
        return models.StateDiff.model_validate(
            self._send("POST", "/state/diff", body=body).json()
        )

    # -- the machine ------------------------------------------------------------------

    def server(self) -> models.ServerInfo:
        return self._get("/server", models.ServerInfo)

    def whoami(self) -> models.WhoAmI:
        return self._get("/whoami", models.WhoAmI)

    def config(self) -> list[models.ConfigEntry]:
        return self._list("/config", models.ConfigEntry)

    def session(self) -> models.Session:
        return self._get("/session", models.Session)

    def apps(self) -> list[models.AppFile]:
        return self._list("/apps", models.AppFile)

    def cluster(self) -> models.Cluster:
        return self._get("/cluster", models.Cluster)

    def kill_worker(self, worker: str) -> models.KilledWorker:
        answer = self._send("POST", f"/cluster/workers/{worker}/kill")
        return models.KilledWorker.model_validate(answer.json())

    def login_link(self, role: str = "operator") -> models.LoginLink:
        body = requests.LinkRequest.model_validate({"role": role})
        answer = self._send("POST", "/login-links", body=body)
        return models.LoginLink.model_validate(answer.json())

    # -- how --------------------------------------------------------------------------

    def _get(self, path: str, model: type[Model], wanted: Mapping[str, Any] = {}) -> Model:
        return model.model_validate(self._send("GET", path, wanted=wanted).json())

    def _list(
        self, path: str, model: type[Model], wanted: Mapping[str, Any] | None = None
    ) -> list[Model]:
        answer = self._send("GET", path, wanted=wanted or {})
        return TypeAdapter(list[model]).validate_python(answer.json())  # type: ignore[valid-type]

    def _pages(
        self, path: str, model: type[Model], wanted: Mapping[str, Any] | None = None
    ) -> Iterator[Model]:
        asked = dict(wanted or {}) | {"limit": 200}
        while True:
            page = self._send("GET", path, wanted=asked).json()
            yield from (model.model_validate(each) for each in page["items"])
            if page["next"] is None:
                return
            asked["cursor"] = page["next"]

    def _ask(
        self,
        path: str,
        request: BaseModel | None,
        *,
        key: str | None = None,
        version: str | None = None,
    ) -> models.Operation:
        headers = {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        answer = self._send("POST", path, body=request, headers=headers)
        return models.Operation.model_validate(answer.json())

    def _send(
        self,
        method: str,
        path: str,
        *,
        wanted: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            answer = self._http.request(
                method,
                f"{API}{path}",
                params=wanted or None,
                json=None if body is None else body.model_dump(mode="json"),
                headers=headers or {},
            )
        except httpx.HTTPError as error:
            raise EnvironmentProblem(
                "SERVER_UNREACHABLE",
                f"the server at {self.url} does not answer: {type(error).__name__}.",
                fix="`holdfast server status` shows whether it runs.",
            ) from error
        _require(answer)
        return answer


def _require(answer: httpx.Response) -> None:
    """Raise what the server says has gone wrong."""
    if answer.is_success:
        return
    answer.read()
    try:
        problem = models.Problem.model_validate(answer.json())
    except ValueError:
        raise RunFailedError(
            "SERVER_ANSWER_UNCLEAR",
            f"the server answered with status {answer.status_code}, and not with a problem.",
            fix="is something else between here and the server?",
        ) from None
    said = problem.detail or problem.title
    if problem.id is not None:
        said = f"an error of the server; its log has more under {problem.id}."
    raise error_of(
        models.Trouble(
            name=problem.name,
            message=said,
            fix=problem.fix,
            kind=problem.kind,
            facts=problem.facts,
        )
    )


def error_of(trouble: models.Trouble) -> HoldfastError:
    return HoldfastError.from_fields(trouble.model_dump())
