"""`holdfast server`: from settings to a process that listens, until it is told to end."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from holdfast.client.address import ServerAddress
from holdfast.errors import ConflictError, EnvironmentProblem
from holdfast.server.access.guard import Access
from holdfast.server.access.roles import Role
from holdfast.server.access.tokens import COMMANDS
from holdfast.server.app import access_for, create_app
from holdfast.server.connections import Connections
from holdfast.server.listening import Listening, listening_of
from holdfast.server.privileges import refuse_new_privileges, require_ordinary_user
from holdfast.server.service import Service
from holdfast.server.service.backend import server_folder
from holdfast.server.ui import add_pages
from holdfast.settings import LoadedSettings
from holdfast.storage.files import exclusive_lock, make_directory
from holdfast.storage.processes import started_at

logger = logging.getLogger(__name__)

FIRST_TOKEN = "operator"  # noqa: S105 - its name
MOST_CONNECTIONS = 1000
_HEADER_SECONDS = 20
_END_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Running:
    """What there is to say once it listens."""

    url: str
    login_url: str
    new_token: str | None
    """The first token, if it was made just now: shown once, and never again."""


def serve(
    loaded: LoadedSettings, *, insecure: bool = False, told: Callable[[Running], None]
) -> None:
    """Until SIGINT or SIGTERM. Jobs and operations go on without it."""
    settings = loaded.values
    listening = listening_of(settings, insecure=insecure)
    require_ordinary_user(os.geteuid(), allow_root=settings.server_allow_root)
    refuse_new_privileges()
    with ExitStack() as stack:
        stack.enter_context(_only_one(loaded))
        service = Service(loaded)
        stack.callback(service.close)
        access = access_for(service)
        new_token = None
        if not any(each.id != COMMANDS for each in access.tokens.all()):
            new_token = access.tokens.create(FIRST_TOKEN, Role.OPERATOR)
        app = create_app(service, access)
        add_pages(app)
        listener = _listen(listening)
        stack.callback(listener.close)
        url = listening.url(listener.getsockname()[1])
        address = _address(listening, url, access)
        address.write(settings.home)
        stack.callback(address.remove, settings.home)
        _reload_on_hangup(access)
        server = uvicorn.Server(server_config(app, listening))
        app.state.connections = Connections(server)
        code = access.sessions.link(access.tokens.of_role(Role.OPERATOR))
        with _ending(server):
            told(Running(url=url, login_url=f"{url}/login?code={code}", new_token=new_token))
            logger.info("server started url=%s", url)
            server.run(sockets=[listener])
        logger.info("server ended url=%s", url)


def server_config(app: FastAPI, listening: Listening) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # addresses have codes of login links in them
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=_HEADER_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        ws_max_size=4 * 1024 * 1024,
    )


def _listen(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((listening.host, listening.port))
        listener.listen(1024)  # who comes before the application is ready waits a moment
    except OSError as error:
        listener.close()
        raise EnvironmentProblem(
            "SERVER_PORT_TAKEN",
            f"{listening.host}:{listening.port} cannot be listened on: {error.strerror}.",
            fix="choose another one: --port N, or --port 0 for any that is free.",
        ) from error
    return listener


def _address(listening: Listening, url: str, access: Access) -> ServerAddress:
    return ServerAddress(
        url=url,
        token=access.tokens.renew(COMMANDS, Role.OPERATOR),
        pid=os.getpid(),
        process_started=started_at(os.getpid()),
        certificate="" if listening.certificate is None else str(listening.certificate),
    )


@contextmanager
def _only_one(loaded: LoadedSettings) -> Iterator[None]:
    """A second server for the same home would begin operations a second time."""
    folder = server_folder(loaded.values.home)
    make_directory(folder)
    folder.chmod(0o700)
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(folder / "lock", timeout=0))
        except ConflictError as error:
            running = ServerAddress.find(loaded.values.home)
            where = f" at {running.url} (process {running.pid})" if running else ""
            raise ConflictError(
                "SERVER_RUNNING",
                f"a server for {loaded.values.home} runs already{where}.",
                fix="use that one, or end it first.",
            ) from error
        yield


def _reload_on_hangup(access: Access) -> None:
    """New tokens without a restart; old ones and their sessions die at once."""
    signal.signal(signal.SIGHUP, lambda *_: access.tokens.reload())


@contextmanager
def _ending(server: uvicorn.Server) -> Iterator[None]:
    """uvicorn raises its signals once more when it has ended, and that would be a death by
    signal where an end was asked for."""

    def handle(*_: object) -> None:
        server.should_exit = True

    previous = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
