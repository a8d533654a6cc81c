"""What a page needs to know: the service, who is looking, and how to ask without blocking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from fastapi import FastAPI
from nicegui import Client, ui
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from holdfast.client import models
from holdfast.errors import AccessError, HoldfastError
from holdfast.server.access.guard import Access
from holdfast.server.access.roles import Actor, Role
from holdfast.server.events import Watcher
from holdfast.server.service import Service, convert

P = ParamSpec("P")
R = TypeVar("R")

VIEWERS_ONLY_LOOK = "You are logged in as a viewer; this takes an operator."


@dataclass(frozen=True)
class Here:
    """One page in one browser."""

    server: FastAPI
    actor: Actor
    cookie: str
    client: Client

    @classmethod
    def of(cls, request: Request) -> Here:
        server: FastAPI = request.state.server
        access: Access = server.state.access
        cookie = request.cookies.get(access.cookie, "")
        return cls(server, request.state.actor, cookie, ui.context.client)

    @property
    def service(self) -> Service:
        found: Service = self.server.state.service
        return found

    @property
    def watcher(self) -> Watcher:
        found: Watcher = self.server.state.watcher
        return found

    @property
    def may_change(self) -> bool:
        return self.actor.role is Role.OPERATOR

    @property
    def why_not(self) -> str:
        """The reason why this person may change nothing; empty: may."""
        return "" if self.may_change else VIEWERS_ONLY_LOOK

    async def ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread: the service waits for files and databases. Raises what it raises."""
        self._require_session()
        return await run_in_threadpool(call, *args, **kwargs)

    def _require_session(self) -> None:
        """A page may be open for weeks; its session is asked for again each time."""
        access: Access = self.server.state.access
        if self.actor.session is None:
            return
        if not self.cookie or access.sessions.find(self.cookie) is None:
            raise AccessError(
                "LOGIN_REQUIRED",
                "this session has ended.",
                fix="log in again: `holdfast server login` makes a link.",
            )


def trouble_of(error: HoldfastError) -> models.Trouble:
    found = convert.trouble(error)
    assert found is not None
    return found


def text_of(value: Any) -> str:
    """A moment as pages get it."""
    return "" if value is None else str(value.isoformat())
