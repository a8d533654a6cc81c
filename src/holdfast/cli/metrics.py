"""`holdfast metrics`: what Prometheus reads, once or for as long as it asks."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, open_registry, settings_for


def metrics(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="Serve them on this port of loopback until Ctrl-C; 0 takes a free one.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print the metrics of all jobs in the OpenMetrics format."""
    if port is not None:
        _serve(settings_for(home=home).values.registry_url, port, as_json=json_output)
        return
    from holdfast.metrics.collect import collect, exposition

    with open_registry(home) as registry:
        families = list(collect(registry))
    if json_output:
        output.print_json([_plain(family) for family in families])
    else:
        output.write_line(exposition(families).decode().rstrip("\n"))


def _serve(registry_url: str, port: int, *, as_json: bool) -> None:
    from holdfast.metrics.server import MetricsServer

    # Said explicitly: a shell starts what it puts in the background with Ctrl-C ignored.
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with MetricsServer(registry_url, port=port) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        if as_json:
            output.print_json_line({"event": "listening", "url": url})
        else:
            output.write_line(f"listening on {url}")
        stop.wait()


def _plain(family: Any) -> dict[str, Any]:
    return {
        "name": family.name,
        "type": family.type,
        "help": family.documentation,
        "samples": [
            {"name": sample.name, "labels": sample.labels, "value": sample.value}
            for sample in family.samples
        ],
    }
