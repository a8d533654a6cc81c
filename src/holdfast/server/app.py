"""The application: routes, checks, and what runs beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

import holdfast
from holdfast.errors import HoldfastError
from holdfast.server import problems
from holdfast.server.access.guard import Access, Guard
from holdfast.server.access.sessions import Sessions
from holdfast.server.access.throttle import LoginThrottle
from holdfast.server.access.tokens import TokenFile
from holdfast.server.events import Watcher
from holdfast.server.routes import (
    events,
    jobs,
    login,
    machine,
    operations,
    probes,
    savepoints,
    state,
)
from holdfast.server.routes.common import PREFIX
from holdfast.server.service import Service
from holdfast.server.service.backend import server_folder

logger = logging.getLogger(__name__)
_LOOK_AFTER_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_GROUPS = (jobs, operations, savepoints, state, machine, events, login)


def access_for(service: Service) -> Access:
    """Tokens and sessions as they are kept beside the registry."""
    settings = service.backend.settings
    folder = server_folder(settings.home)
    tokens = TokenFile(folder)
    return Access(
        tokens=tokens,
        sessions=Sessions(folder, tokens),
        throttle=LoginThrottle(),
        audit=service.backend.audit,
        names=settings.server_names,
        tls=bool(settings.server_tls_cert),
    )


def create_app(service: Service, access: Access) -> FastAPI:
    """All of it. Web pages may be added: what they add is behind the same checks."""
    app = FastAPI(
        title="holdfast",
        version=holdfast.__version__,
        summary="Stateful streaming on Apache Spark that you can trust.",
        description="Times are RFC 3339 in UTC. Errors are RFC 9457 (problem+json), with the "
        "names that the command line uses. Lists have cursors.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        openapi_tags=[group.routes.tag for group in _GROUPS],
        lifespan=_lifespan,
        strict_content_type=True,
        redirect_slashes=False,
    )
    app.state.service, app.state.access = service, access
    app.state.watcher = Watcher(service)
    app.state.connections = None  # whoever runs the server looks after them
    for group in _GROUPS:
        app.include_router(group.routes.router)
    app.include_router(login.public)
    app.include_router(probes.router)
    problems.install(app)
    app.add_middleware(Guard, access=access)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(app.state.watcher.run()),
        asyncio.create_task(_look_after(app.state.service)),
        asyncio.create_task(_prune(app.state.service)),
    ]
    if app.state.connections is not None:
        tasks.append(asyncio.create_task(app.state.connections.watch()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _look_after(service: Service) -> None:
    """Operations whose process has died are begun again, also after this server's own death."""
    while True:
        try:
            await run_in_threadpool(service.backend.dispatcher.look_after)
        except HoldfastError as error:
            logger.warning("operations could not be looked after name=%s", error.name)
        await asyncio.sleep(_LOOK_AFTER_SECONDS)


async def _prune(service: Service) -> None:
    """At the start, and once an hour."""
    while True:
        try:
            gone = await run_in_threadpool(service.operations.prune)
        except (HoldfastError, OSError) as error:
            logger.warning("old operations could not be removed reason=%s", error)
        else:
            if gone:
                logger.info("old operations removed number=%d", gone)
        await asyncio.sleep(_PRUNE_SECONDS)
