"""`holdfast kafka`: a Kafka broker on this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column

if TYPE_CHECKING:
    from holdfast.control.kafka.broker import BrokerStatus, LocalBroker

app = typer.Typer(
    help="A Kafka broker on this machine, for development.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_COLUMNS = [
    Column(key="state", title="STATE"),
    Column(key="address", title="ADDRESS"),
    Column(key="pid", title="PID", text=output.optional),
    Column(key="topics", title="TOPICS", text=output.optional),
    Column(key="directory", title="DIRECTORY", text=str),
    Column(key="since", title="SINCE", text=output.time_of_day),
    Column(key="log", title="LOG", text=str),
]
_NONE = "There is no broker. Start one with `holdfast kafka up`."


@app.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="Port; a free one if absent."
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep the data there, also after `down`."),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Start a broker: one node, on loopback only."""

    def say(text: str) -> None:
        sys.stderr.write(f"{output.clean(text)}\n")
        sys.stderr.flush()

    _show(_broker(home).up(port=port, directory=directory, say=say), as_json=json_output)


@app.command()
def status(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Say where the broker is, and how it is."""
    _show(_broker(home).status(), as_json=json_output)


@app.command()
def down(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """End the broker; its data goes too, unless it has a --dir."""
    ended = _broker(home).down()
    if json_output:
        output.print_json({"ended": asdict(ended) if ended else None})
    else:
        output.write_line(f"Ended: {ended.address}." if ended else _NONE)


def _broker(home: Path | None) -> LocalBroker:
    from holdfast.control.kafka.broker import LocalBroker

    return LocalBroker(settings_for(home=home).values.home)


def _show(found: BrokerStatus | None, *, as_json: bool) -> None:
    if found is None and not as_json:
        output.write_line(_NONE)
        return
    fields = asdict(found) if found else {"state": "none"}
    output.show_fields(fields, _COLUMNS, as_json=as_json)
