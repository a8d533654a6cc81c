"""Tokens: who may come in. The file holds their hashes only; a token is shown once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import parse_time, time_text
from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConflictError, CorruptionError, NotFoundError
from holdfast.server.access.roles import Role
from holdfast.storage.files import make_directory, read_json, write_json
from holdfast.types import check_name

FORMAT = 1
PREFIX = "hf_"
TOKEN_BYTES = 32
COMMANDS = "commands"
"""The token of the command line, which is new at every start of the server."""
SHORTEST = 40
"""256 bits are 43 characters; what is much shorter was not made here."""


@dataclass(frozen=True, kw_only=True)
class Token:
    id: str
    role: Role
    sha256: str
    created: datetime


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    # A token has 256 random bits: no salt and no slow hash are needed.
    return hashlib.sha256(token.encode()).hexdigest()


class TokenFile:
    """`tokens.json`, readable by its owner only."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.path = folder / "tokens.json"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: tuple[Token, ...] = ()
        self.reload()

    def reload(self) -> None:
        """What other processes have changed; the server does it on SIGHUP."""
        self._known = self._read()

    def all(self) -> tuple[Token, ...]:
        return self._known

    def find(self, token: str) -> Token | None:
        """Takes as long for a wrong token as for a right one."""
        given, found = digest(token), None
        for known in self._known:
            if hmac.compare_digest(known.sha256, given):
                found = known
        return found if len(token) >= SHORTEST else None

    def by_id(self, token_id: str) -> Token | None:
        return next((each for each in self._known if each.id == token_id), None)

    def of_role(self, role: Role) -> Token:
        """One that people log in with: sessions are of a token, and die with it."""
        for each in self._known:
            if each.role is role and each.id != COMMANDS:
                return each
        raise NotFoundError(
            "TOKEN_NOT_FOUND",
            f"there is no token of a {role}.",
            fix=f"`holdfast server token create NAME --role {role}` makes one.",
        )

    def renew(self, token_id: str, role: Role) -> str:
        """A new one, whether there was one or not."""
        with self._changing() as tokens:
            token = new_token()
            tokens[:] = [each for each in tokens if each.id != token_id]
            tokens.append(self._token(token_id, role, token))
        return token

    def create(self, token_id: str, role: Role) -> str:
        """The token itself: nobody can show it again."""
        check_name(token_id, "token name")
        with self._changing() as tokens:
            if any(each.id == token_id for each in tokens):
                raise ConflictError(
                    "TOKEN_EXISTS",
                    f"there is a token {token_id!r} already.",
                    fix=f"`holdfast server token rotate {token_id}` makes a new one of it.",
                )
            token = new_token()
            tokens.append(self._token(token_id, role, token))
        return token

    def rotate(self, token_id: str) -> str:
        """The old one and all sessions of it are dead from now on."""
        with self._changing() as tokens:
            known = _find(tokens, token_id)
            token = new_token()
            tokens[tokens.index(known)] = self._token(token_id, known.role, token)
        return token

    def remove(self, token_id: str) -> None:
        with self._changing() as tokens:
            tokens.remove(_find(tokens, token_id))

    def _token(self, token_id: str, role: Role, token: str) -> Token:
        return Token(id=token_id, role=role, sha256=digest(token), created=self._clock.now())

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        with self._lock:
            tokens = list(self._read())
            yield tokens
            make_directory(self.path.parent)
            self.path.parent.chmod(0o700)
            write_json(
                self.path, {"format": FORMAT, "tokens": [_plain(each) for each in tokens]}
            )
            self.path.chmod(0o600)
            self._known = tuple(tokens)

    def _read(self) -> tuple[Token, ...]:
        if not self.path.exists():
            return ()
        stored = read_json(self.path)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise CorruptionError(
                "TOKEN_FILE_UNREADABLE",
                f"{self.path} is not a token file of format {FORMAT}.",
                fix="remove it, and `holdfast server token create` new tokens.",
            )
        return tuple(_token(each) for each in stored["tokens"])


def _find(tokens: list[Token], token_id: str) -> Token:
    for each in tokens:
        if each.id == token_id:
            return each
    raise NotFoundError(
        "TOKEN_NOT_FOUND",
        f"there is no token {token_id!r}.",
        fix="`holdfast server token list` shows them.",
    )


def _plain(token: Token) -> dict[str, Any]:
    return asdict(token) | {"created": time_text(token.created), "role": token.role.value}


def _token(stored: dict[str, Any]) -> Token:
    created = parse_time(stored["created"])
    assert created is not None
    return Token(
        id=stored["id"], role=Role(stored["role"]), sha256=stored["sha256"], created=created
    )
