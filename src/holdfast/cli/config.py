"""`holdfast config`: the settings in force."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column

app = typer.Typer(help="Show the settings.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keeps `show` a command of its own while it is the only one."""


@app.command()
def show(
    origin: Annotated[
        bool, typer.Option("--origin", help="Also say where each value came from.")
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show every setting in force; secrets are masked."""
    rows = [
        {"key": entry.key, "value": entry.shown} | ({"origin": entry.origin} if origin else {})
        for entry in settings_for(home=home).explain()
    ]
    columns = [Column(key="key", title="SETTING"), Column(key="value", title="VALUE")]
    if origin:
        columns.append(Column(key="origin", title="FROM"))
    output.show_rows(rows, columns, as_json=json_output)
