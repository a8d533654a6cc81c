"""Coming in: by a token, or by a link that works once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from holdfast.client import models, requests
from holdfast.errors import AccessError
from holdfast.server.access.guard import Access
from holdfast.server.access.roles import Role
from holdfast.server.access.sessions import LINK_SECONDS, SESSION_SECONDS
from holdfast.server.access.tokens import Token
from holdfast.server.routes.common import ActorHere, Routes, described
from holdfast.server.ui.login import REFUSED, login_page

routes = Routes("login", "Who is asking. Programs send a token, browsers have a session.")
public = APIRouter(tags=["login"])


def access_of(request: Request) -> Access:
    found: Access = request.app.state.access
    return found


@routes.get("/whoami")
def whoami(actor: ActorHere, request: Request) -> models.WhoAmI:
    """The role of the token or session, and what a page must send along with changes."""
    csrf = None
    if actor.session is not None:
        csrf = access_of(request).sessions.csrf(actor.session)
    return models.WhoAmI(name=actor.name, role=actor.role.value, csrf=csrf)


@routes.post("/login-links", status_code=201)
def make_link(
    body: requests.LinkRequest, actor: ActorHere, request: Request
) -> models.LoginLink:
    """A link that logs a browser in, once."""
    access = access_of(request)
    role = Role(body.role)
    with access.audit.change(actor, "login link", of=role.value):
        token = access.tokens.of_role(role)
        code = access.sessions.link(token)
    return models.LoginLink(url=f"{request.base_url}login?code={code}", seconds=LINK_SECONDS)


@public.post(
    "/api/v1/login", status_code=204, responses=described(401, 413, 415, 422, 429, 500)
)
def log_in(body: requests.LoginRequest, request: Request, response: Response) -> None:
    """Exchange a token for a session cookie."""
    access, address = access_of(request), _address(request)
    token = access.tokens.find(body.token)
    if token is None:
        raise _refused(access, address)
    _open_session(access, token, response, address)


@public.get("/login", include_in_schema=False)
def follow_link(request: Request, code: Annotated[str, Query(max_length=200)] = "") -> Response:
    """A link works once, and the page behind it does not have it in its address."""
    if not code:
        return login_page()
    access, address = access_of(request), _address(request)
    token = access.sessions.redeem(code)
    if token is None:
        _refused(access, address)
        return login_page(REFUSED, status=401)
    response = RedirectResponse("/", status_code=303)
    _open_session(access, token, response, address)
    return response


@routes.post("/logout", role=Role.VIEWER, status_code=204)
def log_out(request: Request, response: Response) -> None:
    """Forget the session in this browser."""
    response.delete_cookie(access_of(request).cookie, path="/")


def _open_session(access: Access, token: Token, response: Response, address: str) -> None:
    response.set_cookie(
        access.cookie,
        access.sessions.open(token),
        max_age=SESSION_SECONDS,
        path="/",
        secure=access.tls,
        httponly=True,
        samesite="strict",
    )
    access.audit.write(
        actor=token.id, role=token.role.value, address=address, what="login", outcome="accepted"
    )


def _refused(access: Access, address: str) -> AccessError:
    access.note_failure(address, "login")
    return AccessError(
        "LOGIN_REFUSED",
        "that token or link is not valid, or not any more.",
        fix="`holdfast server login` prints a new link.",
    )


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
