"""What must not be shown: values whose name, or whose form, says that they are secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.storage.known_secrets import HIDDEN, hide

__all__ = ["HIDDEN", "SECRET_NAME", "redacted", "redacted_text"]

SECRET_NAME = re.compile(
    r"passw|secret|token|credential|access[._-]?key|account[._-]?key|api[._-]?key|service[._-]?key"
    r"|private[._-]?key|auth[._-]?params|basic[._-]?auth|jaas|http[._-]?headers"
    r"|(key|trust)store[._-]?(key|password)|ssl[._-]?key|\bsas\b|signature",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"(?<=://)[^/@\s]+@")
_URL_QUERY = re.compile(
    r"(?i)([?&;](?:[^=&;\s]*(?:passw|secret|token|key|sig|sas)[^=&;\s]*)=)[^&;\s'\"]+"
)
_ASSIGNED = re.compile(
    r"(?i)\b((?:[a-z._-]*(?:password|passwd|secret|token|access[._-]?key|api[._-]?key))"
    r"\s*[=:]\s*['\"]?)[^\s'\",;]+"
)
_PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
)


def redacted_text(text: str) -> str:
    """Free text, such as an error or a line of a log."""
    text = _PEM.sub(HIDDEN, hide(text))
    text = _URL_USER.sub(f"{HIDDEN}@", text)
    text = _URL_QUERY.sub(rf"\1{HIDDEN}", text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


def redacted(value: Any, name: str = "") -> Any:
    """The same value with its secrets hidden, however deep they lie."""
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    if isinstance(value, str | bytes) and name and SECRET_NAME.search(name):
        return HIDDEN
    return redacted_text(value) if isinstance(value, str) else value
