"""`holdfast wikipedia`: Wikipedia edits as a stream, for jobs to work on."""

from __future__ import annotations

import importlib.metadata
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for

if TYPE_CHECKING:
    from holdfast.wikipedia.edit import Edit
    from holdfast.wikipedia.targets import Target

_SAY_SECONDS = 1.0


def wikipedia(
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="TARGET", help="kafka:TOPIC or filelog:DIR.")
    ],
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ORIGIN",
            help="live (Wikimedia's stream), synthetic, or a file with an edit per line.",
        ),
    ] = "synthetic",
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, help="Edits per second, at most."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="End after so many.")
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            "--servers", metavar="ADDRESSES", help="Brokers; that of `kafka up` if absent."
        ),
    ] = None,
    partitions: Annotated[
        int,
        typer.Option("--partitions", metavar="N", min=1, help="Of a topic that is not there."),
    ] = 2,
    users: Annotated[
        int, typer.Option("--users", metavar="N", min=1, help="Synthetic: how many.")
    ] = 5_000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Synthetic: same seed, same edits.")
    ] = 1,
    disorder: Annotated[
        float,
        typer.Option(
            "--disorder",
            metavar="SECONDS",
            min=0,
            help="Synthetic: stamp edits up to so much earlier, as late ones are.",
        ),
    ] = 0.0,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Live: another event stream.")
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option("--user-agent", help="Live: who you are, as Wikimedia asks of clients."),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send Wikipedia edits to Kafka or to a file log.

    Live edits are real ones, as they are made. Ctrl-C ends it; every edit that was counted is
    then in its target.
    """
    from holdfast.wikipedia.pump import pump

    target = _target(to, servers, partitions, home)
    with _stopped_by_signals() as stop:
        edits, counts = _edits(
            origin,
            stop,
            users=users,
            seed=seed,
            disorder=disorder,
            url=url,
            user_agent=user_agent,
        )
        with target:
            said = _Teller(quiet=json_output)
            done = pump(edits, target, stop=stop, rate=rate, limit=limit, told=said)
    result = {**asdict(done), "to": to, **(asdict(counts) if counts else {})}
    if json_output:
        output.print_json(result)
        return
    output.write_line(f"{done.sent:,} edits in {output.seconds(done.seconds)} to {to}")
    if counts is not None:
        output.write_line(
            f"left out: {counts.other:,} other changes, {counts.repeated:,} repeated, "
            f"{counts.garbage:,} unreadable; {counts.reconnects:,} reconnects"
        )


def _target(to: str, servers: str | None, partitions: int, home: Path | None) -> Target:
    from holdfast.control.kafka.broker import LocalBroker
    from holdfast.kafka_access import checked_access
    from holdfast.wikipedia.targets import FileLogTarget, KafkaTarget, parse_target

    kind, name = parse_target(to)
    if kind == "filelog":
        return FileLogTarget(Path(name).expanduser())
    address = servers or LocalBroker(settings_for(home=home).values.home).address
    return KafkaTarget(
        name, checked_access(address, None, f"topic {name!r}"), partitions=partitions
    )


def _edits(
    origin: str,
    stop: threading.Event,
    *,
    users: int,
    seed: int,
    disorder: float,
    url: str | None,
    user_agent: str | None,
) -> tuple[Iterable[Edit], Any]:
    """The edits, and for live ones what is left out of them."""
    from holdfast.wikipedia.live import URL, LiveEdits
    from holdfast.wikipedia.origins import edits_of_file, synthetic_edits

    if origin == "synthetic":
        return synthetic_edits(users=users, seed=seed, disorder=disorder), None
    if origin != "live":
        return edits_of_file(Path(origin).expanduser()), None
    version = importlib.metadata.version("holdfast")
    live = LiveEdits(
        user_agent=user_agent or f"holdfast/{version} (command line; httpx)",
        url=url or URL,
        stop=stop,
    )
    return live, live.counts


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """The first Ctrl-C or SIGTERM lets what is on its way arrive; the second ends at once."""
    stop = threading.Event()

    def handle(number: int, _: Any) -> None:
        if stop.is_set():
            raise SystemExit(128 + number)
        stop.set()

    previous = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Teller:
    """A line that counts, on a terminal only."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._quiet = quiet or not self._console.is_terminal
        self._last, self._began = 0.0, time.monotonic()

    def __call__(self, sent: int) -> None:
        now = time.monotonic()
        if self._quiet or now - self._last < _SAY_SECONDS:
            return
        self._last = now
        speed = sent / max(now - self._began, 0.001)
        self._console.print(f"{sent:,} edits, {speed:,.0f} per second", end="\r")
