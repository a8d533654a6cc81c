"""Wikimedia's stream of changes, over server-sent events; it goes on after any interruption."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import EnvironmentProblem, RunFailedError
from holdfast.wikipedia.edit import Edit, NotAnEditError, from_recent_change

URL = "https://stream.wikimedia.org/v2/stream/recentchange"
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0
_SILENCE_SECONDS = 60.0
"""The stream sends something every few seconds; after this it is taken for dead."""
_REMEMBERED = 20_000
_TOO_MANY_REQUESTS, _SERVER_ERRORS, _OK = 429, 500, 200

logger = logging.getLogger(__name__)


@dataclass
class Counts:
    """What was not passed on, and why."""

    repeated: int = 0
    garbage: int = 0
    other: int = 0
    """Changes that are no edits."""
    reconnects: int = 0


@dataclass
class LiveEdits:
    """Iterate over it; ends when `stop` is set.

    After an interruption the stream is asked to go on after the last event (Last-Event-ID).
    It may send some again: they are told by their ids and left out.
    """

    user_agent: str
    url: str = URL
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counts = field(default_factory=Counts)
    jitter: Callable[[], float] = random.random
    first_delay: float = _FIRST_DELAY
    silence: float = _SILENCE_SECONDS
    _last_id: str = ""
    _seen: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def __iter__(self) -> Iterator[Edit]:
        httpx, connect = _client()
        delay = self.first_delay
        timeout = httpx.Timeout(30.0, read=self.silence)
        with httpx.Client(timeout=timeout, headers={"User-Agent": self.user_agent}) as client:
            while not self.stop.is_set():
                try:
                    for edit in self._connection(client, connect):
                        delay = self.first_delay
                        yield edit
                        if self.stop.is_set():
                            return
                    reason = "the server ended the connection"
                except (httpx.HTTPError, _NotNowError) as error:
                    reason = f"{type(error).__name__}: {error}"
                self.counts.reconnects += 1
                pause = delay * (0.5 + self.jitter())
                logger.warning("interrupted reason=%s again_in=%.1fs", reason, pause)
                self.stop.wait(pause)
                delay = min(2 * delay, _LONGEST_DELAY)

    def _connection(self, client: Any, connect: Any) -> Iterator[Edit]:
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        with connect(client, "GET", self.url, headers=headers) as events:
            self._require_answer(events.response)
            for event in events.iter_sse():
                if event.id:
                    self._last_id = event.id
                edit = self._read(event.data)
                if edit is not None:
                    yield edit

    def _require_answer(self, response: Any) -> None:
        status = response.status_code
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS:
            raise _NotNowError(f"{self.url} answers {status}")
        if status != _OK:
            raise RunFailedError(
                "STREAM_REFUSED",
                f"{self.url} answers {status}.",
                fix="is it the address of an event stream? Wikimedia also refuses clients that "
                "do not say who they are: --user-agent.",
            )

    def _read(self, data: str) -> Edit | None:
        if not data:
            return None
        try:
            edit = from_recent_change(json.loads(data))
        except (NotAnEditError, ValueError):
            self.counts.garbage += 1
            return None
        if edit is None:
            self.counts.other += 1
            return None
        if edit.id in self._seen:
            self.counts.repeated += 1
            return None
        self._seen[edit.id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return edit


class _NotNowError(Exception):
    """The server asks to come again later."""


def _client() -> tuple[Any, Any]:
    try:
        import httpx
        from httpx_sse import connect_sse
    except ImportError as error:
        raise EnvironmentProblem(
            "HTTP_CLIENT_MISSING",
            "the Python packages httpx and httpx-sse are not installed.",
            fix='pip install "holdfast[wikipedia]"',
        ) from error
    return httpx, connect_sse
