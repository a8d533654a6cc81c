"""Answers Prometheus on loopback: `/metrics` and `/livez`, and nothing else."""

from __future__ import annotations

import logging
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from holdfast.control.registry import Registry
from holdfast.errors import EnvironmentProblem, HoldfastError
from holdfast.metrics.collect import collect, exposition
from holdfast.metrics.queries import Totals

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_REQUEST_SECONDS = 30
_TEXT = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves the metrics of all jobs of a registry, or of one, from a daemon thread.

    `port` 0 takes a free one; :attr:`port` says which after `start`. It has a connection to the
    registry of its own, and a registry that does not answer costs a scrape, nothing more.
    """

    def __init__(
        self,
        registry_url: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        job: str | None = None,
    ) -> None:
        self._host, self._wanted_port = host, port
        self._registry_url, self._job = registry_url, job
        self._server: _Server | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """0 while it does not run."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        if self._server is not None:
            return
        scraper = _Scraper(self._registry_url, self._job)
        try:
            server = _Server(self._host, self._wanted_port, scraper)
        except OSError as error:
            raise EnvironmentProblem(
                "METRICS_PORT_UNAVAILABLE",
                f"metrics cannot be served on {self._host}:{self._wanted_port}: "
                f"{error.strerror}.",
                fix="choose another port, or 0 for one that is free.",
            ) from error
        self._server = server
        # The first scrape of a job with a long history takes seconds: not Prometheus's seconds.
        self._run("holdfast-metrics-first", scraper.text_or_none)
        self._run("holdfast-metrics", lambda: server.serve_forever(poll_interval=0.1))

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for thread in self._threads:
            thread.join(timeout=5)
        self._threads.clear()
        server.scraper.close()

    def _run(self, name: str, target: Any) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


class _Scraper:
    """Makes the text; one at a time, however many ask."""

    def __init__(self, registry_url: str, job: str | None) -> None:
        self._url, self._job = registry_url, job
        self._lock = threading.Lock()
        self._opened: tuple[Registry, Totals] | None = None
        self._closed = False

    def text_or_none(self) -> bytes | None:
        """None if the registry does not answer."""
        try:
            with self._lock:
                return None if self._closed else self._text()
        except HoldfastError as error:
            logger.warning("metrics not available name=%s", error.name)
        except Exception:
            logger.exception("metrics not available")
        return None

    def _text(self) -> bytes:
        if self._opened is None:
            registry = Registry(self._url)
            try:
                registry.ensure_schema()
            except BaseException:
                registry.close()
                raise
            self._opened = registry, Totals(registry)
        registry, totals = self._opened
        return exposition(collect(registry, job=self._job, totals=totals))

    def close(self) -> None:
        """For good: a request that is still there must not open it again."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened[0].close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, scraper: _Scraper) -> None:
        self.scraper = scraper
        self.hosts = None if host in _EVERYWHERE else {*_LOOPBACK, host}
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS
    server_version, sys_version = "holdfast", ""

    def do_GET(self) -> None:
        # A web page in a browser on this machine must not read them through a name of its own
        # that leads to loopback.
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if self.server.hosts is not None and host not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"unknown host\n")
        elif self.path == "/livez":
            self._answer(HTTPStatus.OK, b"ok\n")
        elif self.path.partition("?")[0] == "/metrics":
            text = self.server.scraper.text_or_none()
            if text is None:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the registry does not answer\n")
            else:
                self._answer(HTTPStatus.OK, text, CONTENT_TYPE_LATEST)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is /metrics and /livez\n")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = _TEXT) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        logger.debug("metrics request %s", format % args)
