"""The checks that every request passes before any route sees it, web sockets included.

Host, size and kind of the body, who is asking, where a change comes from. Below FastAPI, as
plain ASGI: a route that somebody adds, or a library brings along, cannot be forgotten.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import AccessError, HoldfastError, UsageError, shorten
from holdfast.server import problems
from holdfast.server.access.audit import AuditLog
from holdfast.server.access.headers import headers_for
from holdfast.server.access.roles import Actor
from holdfast.server.access.sessions import COOKIE, Sessions
from holdfast.server.access.throttle import LoginThrottle
from holdfast.server.access.tokens import TokenFile

PUBLIC = frozenset({"/livez", "/readyz", "/login", "/api/v1/login"})
"""What answers without a login; nothing here tells anything."""
LOGIN_FILES = frozenset({"/ui/login.css", "/ui/login.js", "/ui/theme.css", "/ui/mark.svg"})
"""What the login page consists of besides itself."""
CSRF_HEADER = "x-csrf-token"
MOST_BYTES = 1024 * 1024
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True)
class Access:
    """What the checks need to know."""

    tokens: TokenFile
    sessions: Sessions
    throttle: LoginThrottle
    audit: AuditLog
    names: tuple[str, ...] = ()
    """Host names besides those of loopback."""
    tls: bool = False
    login_page: str = "/login"
    """Where a browser without a session is sent."""

    @property
    def cookie(self) -> str:
        # The prefix has browsers refuse a cookie that did not come over TLS from this host.
        return f"__Host-{COOKIE}" if self.tls else COOKIE

    def note_failure(self, address: str, via: str) -> None:
        """A wrong token or link. After too many from one address it is not even noted; the
        right token is still let in, so that nobody can keep others out."""
        wait = self.throttle.wait(address)
        if wait:
            raise AccessError(
                "TOO_MANY_LOGINS",
                "too many logins have failed from this address.",
                fix="wait, and use the right token.",
                seconds=max(1, round(wait)),
            )
        self.throttle.failed(address)
        self.audit.write(
            actor=None, address=address, route=via, what="login", outcome="refused"
        )


class Guard:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._names = {*_LOCAL, *(name.lower() for name in access.names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        guarded = _Answering(scope, send, tls=self._access.tls)
        try:
            self._check_host(headers)
            scope.setdefault("state", {})["actor"] = self._actor(scope, headers)
            self._check_origin(scope, headers)
            self._check_body(scope, headers)
        except (AccessError, UsageError) as error:
            await self._refuse(error, scope, receive, guarded)
            return
        await self._app(scope, self._limited(scope, receive, guarded), guarded)

    # -- who --------------------------------------------------------------------------

    def _actor(self, scope: Scope, headers: Headers) -> Actor | None:
        """None only where nobody needs to log in."""
        address = _address(scope)
        bearer, cookie = _bearer(headers), _cookie(headers, self._access.cookie)
        if bearer:
            token = self._access.tokens.find(bearer)
            if token is not None:
                return Actor(name=token.id, role=token.role, address=address, via=_via(scope))
            self._access.note_failure(address, _via(scope))
        elif cookie:
            session = self._access.sessions.find(cookie)
            if session is not None:
                return Actor(
                    name=session.token.id,
                    role=session.token.role,
                    address=address,
                    via=_via(scope),
                    session=session.id,
                )
        if scope["path"] in PUBLIC or scope["path"] in LOGIN_FILES:
            return None
        raise AccessError(
            "LOGIN_REQUIRED",
            "this needs a login.",
            fix="send `Authorization: Bearer TOKEN`; `holdfast server login` makes a link for "
            "a browser.",
        )

    # -- from where -------------------------------------------------------------------

    def _check_host(self, headers: Headers) -> None:
        """A name that somebody else's DNS points here is not one of ours."""
        hosts = headers.getlist("host")
        name = _without_port(hosts[0]) if len(hosts) == 1 else ""
        if name not in self._names:
            raise UsageError(
                "HOST_NOT_ALLOWED",
                f"this server is not {shorten(name)}.",
                fix="add the name to the setting server_names.",
            )

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Browsers send cookies along whoever asks them to; so it matters who did."""
        if scope["type"] == "http" and scope["method"] in _SAFE:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        foreign = site is not None and site not in ("same-origin", "none")
        if origin is not None:
            foreign = foreign or urlsplit(origin).netloc.lower() != headers["host"].lower()
        if foreign:
            raise AccessError(
                "FOREIGN_ORIGIN",
                "a page of another site has asked for this.",
                fix="use the pages of this server, or a token.",
            )
        actor: Actor | None = scope["state"]["actor"]
        if scope["type"] == "websocket":
            if origin is None and actor is not None and actor.session is not None:
                raise AccessError("FOREIGN_ORIGIN", "a web socket must say its origin.")
            return
        if actor is not None and actor.session is not None and not _is_page(scope):
            expected = self._access.sessions.csrf(actor.session)
            if not hmac.compare_digest(headers.get(CSRF_HEADER, ""), expected):
                raise AccessError(
                    "CSRF_TOKEN_WRONG",
                    "the header X-CSRF-Token is missing or wrong.",
                    fix="GET /api/v1/whoami tells it.",
                )

    # -- what -------------------------------------------------------------------------

    def _check_body(self, scope: Scope, headers: Headers) -> None:
        if scope["type"] != "http":
            return
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            raise _too_large()
        has_body = length != "0" or "transfer-encoding" in headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if has_body and scope["path"].startswith("/api/") and kind != "application/json":
            raise UsageError(
                "BODY_NOT_JSON",
                f"the body is {shorten(kind)}.",
                fix="send JSON, with Content-Type: application/json.",
            )

    def _limited(self, scope: Scope, receive: Receive, send: _Answering) -> Receive:
        """A body that does not say how long it is must not be longer either."""
        got = 0

        async def limited() -> Message:
            nonlocal got
            message = await receive()
            if message["type"] != "http.request":
                return message
            got += len(message.get("body", b""))
            if got <= MOST_BYTES:
                return message
            # Answered here: what reads the body would take this for a body that is not JSON.
            await self._refuse(_too_large(), scope, receive, send)
            send.over = True
            return {"type": "http.disconnect"}

        return limited

    # -- answers ----------------------------------------------------------------------

    async def _refuse(
        self, error: HoldfastError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": error.name})
            return
        headers: dict[str, Any] = {}
        if error.name == "LOGIN_REQUIRED":
            if _wants_a_page(scope):
                page = RedirectResponse(self._access.login_page, status_code=303)
                await page(scope, receive, send)
                return
            headers["WWW-Authenticate"] = "Bearer"
        if error.name == "TOO_MANY_LOGINS":
            headers["Retry-After"] = str(error.facts["seconds"])
        await problems.send(error, scope, receive, send, headers)


class _Answering:
    """Adds the headers that every answer has; and nothing more once it is over."""

    def __init__(self, scope: Scope, send: Send, *, tls: bool) -> None:
        self._send = send
        self._headers = headers_for(scope["path"], tls=tls)
        self.over = False

    async def __call__(self, message: Message) -> None:
        if self.over:
            return
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)


def _too_large() -> UsageError:
    return UsageError(
        "BODY_TOO_LARGE",
        f"the body has more than {MOST_BYTES:,} bytes.",
        fix="nothing that this server takes is as long as that.",
    )


def _is_page(scope: Scope) -> bool:
    """Web pages have protections of their own kind: their posts come from the same origin."""
    return not scope["path"].startswith("/api/")


def _wants_a_page(scope: Scope) -> bool:
    accepts = Headers(scope=scope).get("accept", "")
    return scope["method"] == "GET" and "text/html" in accepts and _is_page(scope)


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _via(scope: Scope) -> str:
    return f"{scope.get('method', 'WS')} {scope['path']}"
