"""Sessions of browsers: a signed cookie, and links that log in once.

Nothing of a session is kept on the server, so it survives a restart. A session belongs to a
token as it is: when that is rotated or removed, the session is dead.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

from holdfast.server.access.tokens import Token, TokenFile
from holdfast.storage.files import make_directory

COOKIE = "holdfast_session"
SESSION_SECONDS = 12 * 3600
LINK_SECONDS = 15 * 60
_KEY_BYTES = 32


@dataclass(frozen=True)
class Session:
    id: str
    token: Token


class Sessions:
    def __init__(self, folder: Path, tokens: TokenFile) -> None:
        self._tokens = tokens
        self._key = _key(folder / "session.key")
        self._lock = threading.Lock()
        self._links: dict[str, tuple[str, float]] = {}

    # -- cookies ----------------------------------------------------------------------

    def open(self, token: Token) -> str:
        """The value of the cookie."""
        body = {
            "id": secrets.token_urlsafe(16),
            "token": token.id,
            "of": token.sha256[:16],
            "until": int(time.time()) + SESSION_SECONDS,
        }
        text = urlsafe_b64encode(json.dumps(body).encode()).decode()
        return f"{text}.{self._sign('session', text)}"

    def find(self, cookie: str) -> Session | None:
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign("session", text), signature):
            return None
        body = json.loads(urlsafe_b64decode(text))
        token = self._tokens.by_id(body["token"])
        alive = body["until"] > time.time()
        if token is None or not alive or token.sha256[:16] != body["of"]:
            return None
        return Session(body["id"], token)

    def csrf(self, session_id: str) -> str:
        """What a page sends along with a change; another site cannot know it."""
        return self._sign("csrf", session_id)

    def _sign(self, purpose: str, text: str) -> str:
        signature = hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256")
        return urlsafe_b64encode(signature).rstrip(b"=").decode()

    # -- links ------------------------------------------------------------------------

    def link(self, token: Token) -> str:
        """A code that logs in once, and not for long."""
        code = secrets.token_urlsafe(_KEY_BYTES)
        with self._lock:
            now = time.monotonic()
            self._links = {key: each for key, each in self._links.items() if each[1] > now}
            self._links[code] = token.id, now + LINK_SECONDS
        return code

    def redeem(self, code: str) -> Token | None:
        with self._lock:
            token_id, until = self._links.pop(code, ("", 0.0))
        return self._tokens.by_id(token_id) if until > time.monotonic() else None


def _key(path: Path) -> bytes:
    """Made once; whoever has it can make sessions, so it is its owner's only."""
    make_directory(path.parent)
    path.parent.chmod(0o700)
    try:
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
        ) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    except FileExistsError:
        pass
    return path.read_bytes()
