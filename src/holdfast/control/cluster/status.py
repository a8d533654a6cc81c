"""What the Master says about its workers, from its web page for programs."""

from __future__ import annotations

import hmac
import json
import urllib.error
import urllib.request
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from holdfast.control.cluster.plan import LOOPBACK

_SECONDS = 5.0
_HEADER = b'{"alg":"HS256","typ":"JWT"}'


def ask_master(web_port: int, key: str) -> Mapping[str, Any] | None:
    """The Master's own account; None if it does not answer, or is somebody else."""
    request = urllib.request.Request(
        f"http://{LOOPBACK}:{web_port}/json/", headers={"Authorization": f"Bearer {token(key)}"}
    )
    # Not through a proxy that the environment may name: this is loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            found = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def token(key: str) -> str:
    """A JWS as Spark's JWSFilter wants it: signed with HS256; what it says does not matter."""
    body = f"{_base64(_HEADER)}.{_base64(b'{}')}"
    signature = hmac.digest(urlsafe_b64decode(key), body.encode(), "sha256")
    return f"{body}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def workers_by_port(account: Mapping[str, Any] | None) -> dict[int, Mapping[str, Any]]:
    """The workers that the Master counts on."""
    listed = (account or {}).get("workers", [])
    return {worker["port"]: worker for worker in listed if worker["state"] == "ALIVE"}
