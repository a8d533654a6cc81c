"""`holdfast logs` and `holdfast events`."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JobArgument, JsonOption, open_registry
from holdfast.cli.output import Column
from holdfast.errors import NotFoundError

_POLL_SECONDS = 0.2

_EVENT_COLUMNS = [
    Column(key="at", title="AT", text=output.time_of_day),
    Column(key="attempt", title="ATTEMPT", text=output.optional, right=True),
    Column(key="kind", title="EVENT"),
    Column(key="text", title="WHAT HAPPENED"),
]


def logs(
    job: JobArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing what is written.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="Last lines to show.")
    ] = 100,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", help="Of which attempt; default: the last."),
    ] = None,
    supervisor: Annotated[
        bool, typer.Option("--supervisor", help="The log of a detached supervisor instead.")
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print the log of an attempt: the driver's and the JVM's words, tracebacks included."""
    from holdfast.checkpoint.identity import JobDirectory  # takes pyarrow along

    with open_registry(home) as registry:
        row = registry.job(job)
        last = max((each.number for each in registry.attempts(row.id)), default=0)
    path = Path(row.spec["directory"])
    directory = JobDirectory(path.parent, path.name)
    log = (
        directory.logs / "supervisor.log"
        if supervisor
        else directory.attempt_log(attempt or last)
    )
    if not log.exists():
        raise NotFoundError(
            "LOG_NOT_FOUND",
            f"job {row.name!r} has no {log.name}.",
            fix="`holdfast attempts` lists the attempts; --attempt N chooses one.",
        )
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, lines):
            _print(line, as_json=json_output)
        while follow:
            line = file.readline()
            if line:
                _print(line, as_json=json_output)
            else:
                time.sleep(_POLL_SECONDS)


def _print(line: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json_line({"line": line.rstrip("\n")})
    else:
        output.write_line(output.clean(line.rstrip("\n")))


def events(
    job: JobArgument,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="The newest only.")
    ] = 100,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """List what happened to a job: failures, restarts, lost workers, commands."""
    with open_registry(home) as registry:
        found = registry.events(registry.job(job).id, last)
    output.show_rows(
        [vars(event) for event in found],
        _EVENT_COLUMNS,
        as_json=json_output,
        empty="Nothing has happened yet.",
    )
