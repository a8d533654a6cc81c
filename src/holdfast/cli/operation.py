"""`holdfast operation`: long work on record, whoever asked for it. Needs no server."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, open_registry
from holdfast.cli.output import Column

app = typer.Typer(
    no_args_is_help=True,
    help="Long work that a server was asked for: what it came to, and its end.",
    rich_markup_mode=None,
)
OperationArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the operation; `list` shows them.")
]


def _progress(at: Any) -> str:
    return "" if at is None else f"{at['what']} {at['done']:,}/{at['total']:,}"


def _error(error: Any) -> str:
    return "" if error is None else f"{error['name']}: {error['message']}"


_LISTED = [
    Column(key="id", title="OPERATION"),
    Column(key="job", title="JOB"),
    Column(key="kind", title="WHAT"),
    Column(key="state", title="STATE"),
    Column(key="asked_by", title="ASKED BY"),
    Column(key="created", title="CREATED", text=output.time_of_day),
    Column(key="ended", title="ENDED", text=output.time_of_day),
    Column(key="error", title="ERROR", text=_error),
]
_SHOWN = [
    *_LISTED[:-1],
    Column(key="tries", title="TRIES"),
    Column(key="progress", title="PROGRESS", text=_progress),
    Column(key="parameters", title="PARAMETERS", text=output.optional),
    Column(key="result", title="RESULT", text=output.optional),
    _LISTED[-1],
]


@app.command("list")
def list_(
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only those of this job.")
    ] = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="The newest only.")
    ] = 50,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """List operations, the newest first."""
    from holdfast.control.tracked.log import OperationLog

    with open_registry(home) as registry:
        found = OperationLog(registry).newest(job=job, limit=last)
    output.show_rows(
        [_record(each) for each in found],
        _LISTED,
        as_json=json_output,
        empty="There are no operations.",
    )


@app.command()
def show(
    operation: OperationArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """Show one operation: how far it is, what it has said, what it came to."""
    from holdfast.control.tracked.log import OperationLog

    with open_registry(home) as registry:
        found = _record(OperationLog(registry).get(operation))
    output.show_fields(found, _SHOWN, as_json=json_output)
    for line in found["lines"] if not json_output else ():
        output.write_line(output.clean(line))
    if found["error"] is not None and not json_output:
        output.write_line(f"Fix: {output.clean(found['error']['fix'])}")


@app.command()
def cancel(
    operation: OperationArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """End an operation that is not over; its job can have another one then.

    What it has done so far stays, and the job is left as it is. To end a job, use
    `holdfast cancel`.
    """
    found = _cancelled(operation, home)
    if json_output:
        output.print_json(found)
        return
    output.write_line(output.clean(found["error"]["message"]))
    output.write_line(f"  what now    {output.clean(found['error']['fix'])}")


def _cancelled(operation: str, home: Path | None) -> dict[str, Any]:
    from holdfast.cli.through_server import INSTEAD, client_here
    from holdfast.control.tracked.cancelling import cancel as carry_out
    from holdfast.control.tracked.log import OperationLog
    from holdfast.errors import HoldfastError

    with client_here(home) as client:
        if client is not None:
            try:
                return client.cancel_operation(operation).model_dump()
            except HoldfastError as error:
                if error.name not in INSTEAD:
                    raise
    with open_registry(home) as registry:
        log = OperationLog(registry)
        return _record(carry_out(log, operation, asked_by=getpass.getuser()))


def _record(operation: Any) -> dict[str, Any]:
    """As REST shows it."""
    from holdfast.control.redaction import redacted, redacted_text

    fields = dict(vars(operation))
    del fields["key"], fields["worker"]
    error = operation.error
    return fields | {
        "state": operation.state.value,
        "progress": None if operation.progress is None else vars(operation.progress),
        "parameters": dict(operation.parameters),
        "lines": [redacted_text(line) for line in operation.lines],
        "result": None if operation.result is None else dict(operation.result),
        "error": None if error is None else redacted(output.plain(error)),
    }
