"""`holdfast stop`, `suspend` and `cancel`: what a running job is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JobArgument, JsonOption, open_registry

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", help="How long to wait, in seconds.")
]


def stop(
    job: JobArgument,
    *,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Take a savepoint once it has ended.")
    ] = False,
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="A name for the savepoint.")
    ] = "",
    wait: Wait = True,
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """End a job for good: its running epoch is finished and committed first."""
    if not savepoint:
        _ask(job, "stop", wait=wait, timeout=timeout, home=home, as_json=json_output)
        return
    from holdfast.cli.savepoint import take_and_show

    # A savepoint can only be the job's last word when it has ended.
    ended = _stop(job, "stop", wait=True, timeout=timeout, home=home)
    taken = take_and_show(job, label=label, to=None, home=home, as_json=json_output)
    if json_output:
        output.print_json(ended | {"savepoint": taken})
    else:
        output.write_line(f"{ended['job']}: {ended['state']}")


def suspend(
    job: JobArgument,
    wait: Wait = True,
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Pause a job after its running epoch; `holdfast resume` goes on."""
    _ask(job, "suspend", wait=wait, timeout=timeout, home=home, as_json=json_output)


def cancel(
    job: JobArgument,
    wait: Wait = True,
    timeout: Timeout = 60,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """End a job at once. An epoch that is cut short is repeated when the job runs again."""
    _ask(job, "cancel", wait=wait, timeout=timeout, home=home, as_json=json_output)


def _ask(
    job: str, kind: str, *, wait: bool, timeout: float, home: Path | None, as_json: bool
) -> None:
    ended = _stop(job, kind, wait=wait, timeout=timeout, home=home)
    if as_json:
        output.print_json(ended)
    elif wait:
        output.write_line(f"{ended['job']}: {ended['state']}")
    else:
        output.write_line(f"{ended['job']}: {kind} was asked for")


def _stop(
    job: str, kind: str, *, wait: bool, timeout: float, home: Path | None
) -> dict[str, str]:
    """Ask, and wait if told to; what --json prints."""
    from holdfast.cli.through_server import asked_of_server
    from holdfast.client import requests
    from holdfast.control.operations import ask, wait_for_end

    request = {
        "stop": requests.StopRequest,
        "suspend": requests.SuspendRequest,
        "cancel": requests.CancelRequest,
    }[kind]
    with open_registry(home) as registry:
        row = registry.job(job)
        asked = asked_of_server(
            home, row.name, request(timeout=timeout), quiet=True, timeout=timeout, wait=wait
        )
        if asked is None:
            ask(registry, row, kind)
            if wait:
                wait_for_end(row, timeout=timeout)
        state = registry.job(row.id).state
    return {"job": row.name, "asked": kind, "state": state.value}
