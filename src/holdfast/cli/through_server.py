"""Changes by way of the server, if one runs: then they are on record, one at a time, and go on
when the terminal is closed. Without a server, commands do the same work themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from holdfast.cli import output
from holdfast.cli.options import settings_for
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.client.requests import OperationRequest, StartRequest
    from holdfast.savepoint.store import Progress

INSTEAD = (
    "SERVER_UNREACHABLE",
    "LOGIN_REQUIRED",
    "APP_NOT_ALLOWED",
    "DIRECTORY_DIFFERS",
    "JOB_UNCLEAR",
    "REQUEST_INVALID",
)
"""Then the command does it itself: whoever types it may do anything that the server may."""


def asked_of_server(
    home: Path | None,
    job: str,
    request: OperationRequest,
    *,
    quiet: bool,
    timeout: float,
    progress: Progress | None = None,
    wait: bool = True,
    app: Path | None = None,
) -> dict[str, Any] | None:
    """What the operation came to, or raises what it failed with; None: no server does it.

    `app`: a file that is started, and must find the same there as here.
    """
    with client_here(home) as client:
        if client is None:
            return None
        try:
            if app is not None and not _finds_the_same(client, home, app):
                return None
            operation = (
                client.start(request) if _is_start(request) else client.ask(job, request)
            )
        except HoldfastError as error:
            if error.name in INSTEAD:
                return None
            raise
        if not wait:
            return {"operation": operation.id}
        if not quiet:
            output.write_line(f"operation {operation.id} at {output.clean(client.url)}")
        said = 0
        for now in client.follow(operation, timeout=timeout + 60):
            for line in now.lines[said:] if not quiet else ():
                output.write_line(output.clean(line))
            said = len(now.lines)
            if progress is not None and now.progress is not None:
                progress(now.progress.what, now.progress.done, now.progress.total)
        return client.wait(operation).result or {}


def _is_start(request: OperationRequest) -> TypeGuard[StartRequest]:
    return request.kind == "start"


def _finds_the_same(client: Client, home: Path | None, app: Path) -> bool:
    from holdfast.cli.same_surroundings import finds_the_same
    from holdfast.client.address import ServerAddress

    found = ServerAddress.find(settings_for(home=home).values.home)
    return found is not None and finds_the_same(client.server().python, found.pid, app)


@contextmanager
def client_here(home: Path | None) -> Iterator[Client | None]:
    """Of the server that runs for the same home; None: there is none."""
    from holdfast.client.address import ServerAddress

    found = ServerAddress.find(settings_for(home=home).values.home)
    if found is None:
        yield None
        return
    try:
        from holdfast.client.client import Client
    except ModuleNotFoundError:  # of another environment, which has the extra
        yield None
        return
    ca = Path(found.certificate) if found.certificate else None
    with Client(found.url, found.token, ca=ca) as client:
        yield client
