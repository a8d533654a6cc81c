"""Who is told that a job has failed: a command, or a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from holdfast.control.hooks import call_hook

FACTS = {"job": "wiki", "class": "code", "message": "it broke", "fix": "mend it"}


@contextmanager
def webhook(status: int) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and what was posted to it."""
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/failed", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_webhook_gets_the_facts() -> None:
    with webhook(204) as (url, posted):
        assert call_hook(url, FACTS) == "the webhook answered 204"
    assert posted == [("application/json", FACTS)]


def test_a_command_gets_the_facts(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    assert call_hook(["tee", str(told)], FACTS) == "the command ended with 0"
    assert json.loads(told.read_text()) == FACTS
    assert call_hook(["false"], FACTS) == "the command ended with 1"


def test_a_hook_that_does_not_work_hides_nothing() -> None:
    with webhook(500) as (url, posted):
        assert call_hook(url, FACTS).startswith("it did not work: HTTP Error 500")
    assert len(posted) == 1
    assert call_hook(url, FACTS).startswith("it did not work: ")  # nobody listens any more
    assert call_hook(["/no/such/command"], FACTS).startswith("it did not work: ")
