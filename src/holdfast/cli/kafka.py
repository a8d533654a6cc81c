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
    from holdfast.kafka_access import KafkaAccess

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
ServersOption = Annotated[
    str | None,
    typer.Option(
        "--servers", metavar="ADDRESSES", help="Brokers; that of `kafka up` if absent."
    ),
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


@app.command()
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="How many it has.")
    ] = 2,
    servers: ServersOption = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a topic; one that is there stays as it is."""
    from holdfast.storage.kafka import KafkaAdmin, NewTopic

    admin = KafkaAdmin(_access(servers, home))
    made = bool(admin.create([NewTopic(name=topic, partitions=partitions)]))
    count = len(admin.partitions([topic])[topic])
    if json_output:
        output.print_json({"topic": topic, "partitions": count, "made": made})
    else:
        verb = "Made" if made else "Already there:"
        output.write_line(f"{verb} topic {topic} with {count} partitions.")


@app.command()
def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    *,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="End after so many records."),
    ] = None,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Also what is in no finished transaction."),
    ] = False,
    servers: ServersOption = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a topic holds now, from its beginning."""
    from itertools import islice

    from holdfast.storage.kafka_topic import read_topic

    records = read_topic(_access(servers, home), topic, committed=not uncommitted)
    for record in islice(records, limit):
        fields = {
            "partition": record.partition,
            "offset": record.offset,
            "key": _text(record.key),
            "value": _text(record.value),
        }
        if json_output:
            output.print_json_line(fields)
        else:
            place = f"{record.partition}:{record.offset}"
            key = "" if record.key is None else f"{fields['key']}  "
            output.write_line(output.clean(f"{place:<12}{key}{fields['value']}"))


def _text(found: bytes | None) -> str | None:
    return None if found is None else found.decode("utf-8", "replace")


def _access(servers: str | None, home: Path | None) -> KafkaAccess:
    from holdfast.kafka_access import checked_access

    return checked_access(servers or _broker(home).address, {}, "--servers")


def _broker(home: Path | None) -> LocalBroker:
    from holdfast.control.kafka.broker import LocalBroker

    return LocalBroker(settings_for(home=home).values.home)


def _show(found: BrokerStatus | None, *, as_json: bool) -> None:
    if found is None and not as_json:
        output.write_line(_NONE)
        return
    fields = asdict(found) if found else {"state": "none"}
    output.show_fields(fields, _COLUMNS, as_json=as_json)
