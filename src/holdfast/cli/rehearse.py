"""`holdfast fork`, `diff` and `promote`: other code on a job's real state, without the job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.control import Timeout
from holdfast.cli.operations import conclude, of_server, place_of
from holdfast.cli.options import (
    HomeOption,
    JobArgument,
    JsonOption,
    SinkOption,
    open_registry,
    settings_for,
)
from holdfast.cli.output import Column
from holdfast.cli.plans import show_plan
from holdfast.cli.run import (
    AvailableNow,
    Detach,
    JobArguments,
    JobInFile,
    JsonLines,
    Parallelism,
    start,
    start_asked_of_server,
    stored_origin,
)

if TYPE_CHECKING:
    from holdfast.control.launch import Launch
    from holdfast.control.operations import Place


def fork(
    *,
    of: Annotated[
        str,
        typer.Argument(
            metavar="JOB|SAVEPOINT", help="A job, running or not, or one of its savepoints."
        ),
    ],
    app: Annotated[Path, typer.Argument(metavar="APP.py", help="The code of the fork.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the new job.")],
    job: JobInFile = None,
    available_now: AvailableNow = False,
    parallelism: Parallelism = None,
    arguments: JobArguments = None,
    allow_dropped: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="Leave state behind that the code has no place for.",
        ),
    ] = False,
    detach: Detach = False,
    home: HomeOption = None,
    json_output: JsonLines = False,
) -> int:
    """Start a job of its own from the state of another one, which does not notice.

    A savepoint is taken first, if none is given. The fork goes on reading where the other job
    was; what it writes to files goes to other directories: `out` becomes `out.NAME`.
    """
    from holdfast.control.forks import prepare_fork
    from holdfast.control.launch import Launch
    from holdfast.job.arguments import parse_arguments

    launch = Launch(
        app=app,
        job_name=job,
        name=name,
        available_now=available_now,
        parallelism=parallelism,
        job_arguments=parse_arguments(arguments or []),
        allow_dropped=allow_dropped,
    )
    settings = settings_for(home=home).values
    with place_of(home, as_json=json_output) as place:
        asked = _asked_to_fork(place, of, launch, home) if detach else None
        launch = launch if asked else prepare_fork(place, of, launch)
    return start(
        launch, settings, master=None, detach=detach, json_output=json_output, asked=asked
    )


def _asked_to_fork(
    place: Place, of: str, launch: Launch, home: Path | None
) -> dict[str, Any] | None:
    """None: no server runs, or it cannot be asked for this."""
    from pydantic import ValidationError

    from holdfast.client.requests import ForkRequest

    parent, savepoint, jobs = of, None, {row.name for row in place.registry.jobs()}
    if of not in jobs:
        savepoint = stored_origin(of, place.settings)
        if savepoint is None:
            return None
        parent = place.savepoints.by_id(savepoint).manifest.identity.name
    if parent not in jobs:
        return None
    try:
        request = ForkRequest(
            name=str(launch.name),
            savepoint=savepoint,
            app=str(launch.app.absolute()),
            job=launch.job_name,
            parallelism=launch.parallelism,
            arguments=dict(launch.job_arguments),
            available_now=launch.available_now,
            allow_dropped=launch.allow_dropped,
            directory=str(launch.directory),
        )
    except ValidationError:
        return None  # what is wrong is said by who does it
    return start_asked_of_server(home, parent, request, launch.app)


def diff(
    job: JobArgument,
    other: Annotated[str, typer.Argument(metavar="FORK", help="A fork of it, or the reverse.")],
    *,
    sink: Annotated[
        str | None, typer.Option("--sink", metavar="UID", help="Only this sink.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Rows to show of each job.")
    ] = 10,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Compare what a job and its fork have written to files since the fork.

    Exit code 1 if they differ.
    """
    from holdfast.control.output_diff import compared
    from holdfast.control.output_summary import summary
    from holdfast.control.running import directory_of

    with open_registry(home) as registry:
        first, second = (directory_of(registry.job(each)) for each in (job, other))
    found = compared(first, second, sink=sink, limit=limit)
    told = summary(found)
    if json_output:
        output.print_json(told)
    else:
        _show(told)
    return 0 if found.same else 1


def promote(
    *,
    job: Annotated[str, typer.Argument(metavar="FORK", help="The fork that was rehearsed.")],
    sink: SinkOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    timeout: Timeout = 180,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Let the job that was forked go on with the code, the state and the output of its fork.

    Both are stopped first. What the job itself has written since the fork is counted, and
    removed, kept, or left behind as --sink says. If this is interrupted, give the same command
    again. If it is refused, the job goes on as it was.
    """
    from holdfast.client.requests import PromoteRequest
    from holdfast.control.forks import promote as carry_out
    from holdfast.control.forks import promotion_plan, rehearsal_of

    with place_of(home, as_json=json_output) as place:
        row = place.registry.job(job)
        if dry_run:
            plan = promotion_plan(place, rehearsal_of(place.registry, row), sink)
            show_plan(plan, as_json=json_output)
            return
        request = PromoteRequest(sink=sink, timeout=timeout)
        asked = of_server(place, row, request, home=home, as_json=json_output)
        outcome = asked or carry_out(place, row, sink, timeout=timeout)
    conclude(outcome, as_json=json_output)


# -- a comparison, shown ------------------------------------------------------------------


def _show(told: Mapping[str, Any]) -> None:
    from holdfast.control.output_summary import column_lines, input_lines

    for side in told["jobs"]:
        output.write_line(
            f"job {side['job']}: epochs after {side['after']} up to {side['epoch']}, now in "
            f"timeline {side['timeline']}"
        )
    for line in input_lines(told):
        output.write_line(output.clean(line))
    first, second = (side["job"] for side in told["jobs"])
    rows = [
        {
            "sink": each["uid"],
            "both": each["both"],
            "first": each["only"][first],
            "second": each["only"][second],
        }
        for each in told["sinks"]
    ]
    columns = [
        Column(key="sink", title="SINK"),
        Column(key="both", title="ROWS IN BOTH", text=output.count, right=True),
        Column(key="first", title=f"ONLY IN {first}", text=output.count, right=True),
        Column(key="second", title=f"ONLY IN {second}", text=output.count, right=True),
    ]
    output.show_rows(rows, columns, as_json=False, empty="They have no sinks of files.")
    for line in column_lines(told):
        output.write_line(output.clean(line))
    for each in told["sinks"]:
        if each["samples"]:
            shown = list(each["samples"][0]["row"])
            output.show_rows(
                [{"only in": sample["job"], **sample["row"]} for sample in each["samples"]],
                [
                    Column(key="only in", title=f"{each['uid']}, ONLY IN"),
                    *(Column(key=name, title=name, text=output.optional) for name in shown),
                ],
                as_json=False,
            )
