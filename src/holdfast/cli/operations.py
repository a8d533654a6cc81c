"""`holdfast rescale`, `rollback` and `upgrade`: a job stopped and started in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.control import Timeout
from holdfast.cli.options import (
    HomeOption,
    JobArgument,
    JsonOption,
    SinkOption,
    open_registry,
    settings_for,
)
from holdfast.cli.plans import show_plan
from holdfast.cli.run import stored_origin
from holdfast.cli.savepoint import SavepointArgument, shown_progress
from holdfast.cli.through_server import asked_of_server

if TYPE_CHECKING:
    from holdfast.checkpoint.timelines import SinkChoice
    from holdfast.client.requests import OperationRequest
    from holdfast.control.operations import Outcome, Place
    from holdfast.control.registry import JobRow


def rescale(
    job: JobArgument,
    parallelism: Annotated[
        int, typer.Argument(metavar="N", min=1, help="Number of partitions.")
    ],
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Move a job's state to another number of partitions.

    The job is stopped with a savepoint and goes on from it. If that is interrupted, give the
    same command again. If it is refused, the job goes on as it was.
    """
    from holdfast.client import requests
    from holdfast.control.operations import rescale as carry_out

    with place_of(home, as_json=json_output) as place:
        row = place.registry.job(job)
        asked = of_server(
            place,
            row,
            requests.RescaleRequest(parallelism=parallelism, timeout=timeout),
            home=home,
            as_json=json_output,
        )
        done = asked or carry_out(place, row, parallelism, timeout=timeout)
    conclude(done, as_json=json_output)


def rollback(
    *,
    job: JobArgument,
    savepoint: SavepointArgument,
    sink: SinkOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Take a job back to a savepoint (or to checkpoint:N), and go on from there.

    What the sinks hold beyond that point is counted first, and removed, kept, or left behind
    as --sink says.
    """
    from holdfast.control.launch import Launch
    from holdfast.control.operations import planned, roll_back

    with place_of(home, as_json=json_output) as place:
        row = place.registry.job(job)
        if dry_run:
            plan = planned(place, Launch.from_spec(row.name, row.spec), savepoint, sink)
            show_plan(plan, as_json=json_output)
            return
        request = _rollback_request(place, savepoint, sink, timeout)
        asked = request and of_server(place, row, request, home=home, as_json=json_output)
        outcome = asked or roll_back(place, row, savepoint, sink, timeout=timeout)
    conclude(outcome, as_json=json_output)


def epochs(given: str | int) -> int:
    """A number of epochs, with or without the word."""
    number = re.fullmatch(r"\s*0*([1-9]\d*)\s*(?:epochs?)?\s*", str(given))
    if number is None:
        raise typer.BadParameter(f"{str(given)!r} is no number of epochs, such as 3.")
    return int(number[1])


def upgrade(
    job: JobArgument,
    app: Annotated[Path, typer.Argument(metavar="APP.py", help="The file with the new code.")],
    *,
    healthy_after: Annotated[
        int,
        typer.Option(
            "--healthy-after",
            metavar="N",
            parser=epochs,
            help="Epochs that prove that it works: 3, or '3 epochs'.",
        ),
    ] = 3,
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Go on with new code, and with the old one again if the new one fails.

    The job is stopped with a savepoint; the new code starts from it and is watched. If it fails
    before it has committed enough epochs, what it wrote is removed, and the old code goes on
    from the savepoint. Then the exit code is 1.
    """
    from holdfast.client import requests
    from holdfast.control.operations import upgrade as carry_out

    with place_of(home, as_json=json_output) as place:
        row = place.registry.job(job)
        asked = of_server(
            place,
            row,
            requests.UpgradeRequest(
                app=str(app.absolute()), healthy_epochs=healthy_after, timeout=timeout
            ),
            home=home,
            as_json=json_output,
        )
        outcome = asked or carry_out(
            place, row, app, healthy_epochs=healthy_after, timeout=timeout
        )
    conclude(outcome, as_json=json_output)
    return 1 if outcome.rolled_back else 0


@contextmanager
def place_of(home: Path | None, *, as_json: bool) -> Iterator[Place]:
    from holdfast.control.operations import Place

    def say(line: str) -> None:
        if not as_json:
            output.write_line(output.clean(line))

    with open_registry(home) as registry, shown_progress(quiet=as_json) as progress:
        yield Place(registry, settings_for(home=home).values, say, progress)


def of_server(
    place: Place, row: JobRow, request: OperationRequest, *, home: Path | None, as_json: bool
) -> Outcome | None:
    """What it came to; None if no server runs that can do it."""
    from holdfast.control.operations import Outcome

    result = asked_of_server(
        home,
        row.name,
        request,
        quiet=as_json,
        timeout=request.longest,
        progress=place.progress,
    )
    return None if result is None else Outcome(**result)


def _rollback_request(
    place: Place, savepoint: str, sink: SinkChoice | None, timeout: float
) -> OperationRequest | None:
    """The server takes ids only; a savepoint in some directory is for the command itself."""
    from holdfast.client import requests

    origin = stored_origin(savepoint, place.settings)
    if origin is None:
        return None
    return requests.RollbackRequest(origin=origin, sink=sink, timeout=timeout)


def conclude(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        output.print_json(asdict(outcome))
        return
    if outcome.rolled_back:
        output.write_line(f"rolled back: {output.clean(outcome.rolled_back)}")
    # A job that was never taken anywhere came from nothing; a rollback may be to checkpoint:N.
    kind = "" if outcome.savepoint.startswith("checkpoint:") else "savepoint "
    whence = f", from {kind}{outcome.savepoint}" if outcome.savepoint else ""
    output.write_line(
        f"job {outcome.job} runs with {outcome.parallelism} partitions{whence}, in timeline "
        f"{outcome.timeline}"
    )
