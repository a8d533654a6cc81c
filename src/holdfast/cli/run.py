"""`holdfast run` and `holdfast resume`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import (
    HomeOption,
    JobArgument,
    SinkOption,
    open_registry,
    settings_for,
)
from holdfast.cli.output import clean, print_json, write_line
from holdfast.cli.plans import show_check

if TYPE_CHECKING:
    from holdfast.client.requests import OperationRequest
    from holdfast.control.launch import Launch

JsonLines = Annotated[bool, typer.Option("--json", help="Print progress as JSON lines.")]
Detach = Annotated[
    bool,
    typer.Option("--detach", "-d", help="Hand the job to a supervisor in the background."),
]
_CANCELED = 130
JobInFile = Annotated[
    str | None,
    typer.Option("--job", metavar="NAME", help="Which job, if the file has several."),
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Process what is there, then end.")
]
Parallelism = Annotated[
    int | None, typer.Option("--parallelism", metavar="N", min=1, help="Partitions.")
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Take the job away from whoever runs it; that run ends."),
]
JobArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="An argument that the job declares. Again for more."
    ),
]
Master = Annotated[str | None, typer.Option("--master", metavar="M", help="Spark master.")]


def run(
    *,
    app: Annotated[Path, typer.Argument(metavar="APP.py", help="The file with the job.")],
    job: JobInFile = None,
    available_now: AvailableNow = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Run it under another name than the file's."
        ),
    ] = None,
    master: Master = None,
    parallelism: Parallelism = None,
    arguments: JobArguments = None,
    home: HomeOption = None,
    max_epochs: Annotated[
        int | None,
        typer.Option("--max-epochs", metavar="N", min=1, help="End after so many epochs."),
    ] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="POINT", help="Start from a savepoint, or from checkpoint:N."
        ),
    ] = None,
    sink: SinkOption = None,
    allow_dropped: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="With --from: leave state behind that the code has no place for.",
        ),
    ] = False,
    reset_sources: Annotated[
        list[str] | None,
        typer.Option(
            "--reset-source",
            metavar="UID",
            help="With --from: this source begins where the code says, not where it was. Its "
            "state stays. For a topic that was made anew.",
        ),
    ] = None,
    claim: Annotated[
        bool,
        typer.Option(
            "--claim", help="With --from: the savepoint is removed once the job has it."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what --from would do.")
    ] = False,
    take_over: TakeOver = False,
    detach: Detach = False,
    unsupervised: Annotated[
        bool,
        typer.Option("--unsupervised", help="One attempt in this very process, for debuggers."),
    ] = False,
    json_output: JsonLines = False,
) -> int:
    """Run a job under supervision.

    It goes on from its last checkpoint; without one it begins anew. When an attempt fails,
    the job's restart strategy decides what happens. Ctrl-C lets the running epoch finish and
    suspends the job; a second one cuts it short.
    """
    from holdfast.control.launch import Launch
    from holdfast.job.arguments import parse_arguments

    launch = Launch(
        app=app,
        job_name=job,
        name=name,
        available_now=available_now,
        parallelism=parallelism,
        job_arguments=parse_arguments(arguments or []),
        max_epochs=max_epochs,
        start_from=start_from,
        sink_choice=sink,
        allow_dropped=allow_dropped,
        reset_sources=tuple(reset_sources or ()),
        claim=claim,
        take_over=take_over,
    )
    settings = settings_for(home=home, master=master).values
    if dry_run:
        from holdfast.control.restore_check import check_restore

        return show_check(check_restore(launch, settings), as_json=json_output)
    asked = _asked_to_start(launch, settings, home) if detach and master is None else None
    return start(
        launch,
        settings,
        master=master,
        detach=detach,
        unsupervised=unsupervised,
        json_output=json_output,
        asked=asked,
    )


def resume(
    job: JobArgument,
    *,
    master: Master = None,
    take_over: TakeOver = False,
    detach: Detach = False,
    home: HomeOption = None,
    json_output: JsonLines = False,
) -> int:
    """Run a job again as it was last started, and where, from its last checkpoint."""
    from holdfast.control.launch import Launch

    with open_registry(home) as registry:
        row = registry.job(job)
    launch = replace(Launch.from_spec(row.name, row.spec), take_over=take_over)
    settings = settings_for(home=home, master=master).values
    asked = None
    if detach and master is None:
        from holdfast.client.requests import ResumeRequest

        request = ResumeRequest(take_over=take_over)
        asked = start_asked_of_server(home, row.name, request, launch.app)
    return start(
        launch, settings, master=master, detach=detach, json_output=json_output, asked=asked
    )


def start(
    launch: Launch,
    settings: Any,
    *,
    master: str | None,
    detach: bool,
    json_output: bool,
    unsupervised: bool = False,
    asked: Mapping[str, Any] | None = None,
) -> int:
    """Run a job here, or hand it to the background. `asked`: what the server says that has
    done it already."""
    from holdfast.cli.reporter import JsonReporter, TextReporter
    from holdfast.control.launch import run_detached, run_supervised, run_unsupervised

    if detach:
        _show_detached(
            asked or asdict(run_detached(launch, settings, master=master)), as_json=json_output
        )
        return 0
    _log_to_stderr(settings.log_level)
    reporter = JsonReporter() if json_output else TextReporter()
    if unsupervised:
        run_unsupervised(launch, settings, reporter)
        return 0
    # What the job prints must not stand between JSON lines.
    state = run_supervised(launch, settings, reporter, quiet=json_output)
    return _CANCELED if state == "CANCELED" else 0


def _show_detached(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    job = clean(found["job"])
    if "pid" in found:
        write_line(
            f"job {job}: attempt {found['attempt']} runs, supervised by process {found['pid']}"
        )
        write_line(f"  its log     {clean(found['log'])}")
    else:  # the process that started it died, and the next one found it running
        write_line(f"job {job} runs")
    write_line(f"  see it      holdfast show {job}")
    write_line(f"  end it      holdfast stop {job}")


def _asked_to_start(launch: Launch, settings: Any, home: Path | None) -> dict[str, Any] | None:
    """None: no server runs, or it cannot be asked for this."""
    from pydantic import ValidationError

    from holdfast.client.requests import StartRequest

    if launch.claim or launch.reset_sources or launch.take_over:
        return None
    origin = launch.start_from
    if origin is not None and (origin := stored_origin(origin, settings)) is None:
        return None
    try:
        request = StartRequest(
            app=str(launch.app.absolute()),
            job=launch.job_name,
            name=launch.name,
            parallelism=launch.parallelism,
            arguments=dict(launch.job_arguments),
            available_now=launch.available_now,
            max_epochs=launch.max_epochs,
            start_from=origin,
            sink=launch.sink_choice,
            allow_dropped=launch.allow_dropped,
            directory=str(launch.directory),
        )
    except ValidationError:
        return None  # what is wrong is said by who does it
    return start_asked_of_server(home, launch.name or "", request, launch.app)


def stored_origin(origin: str, settings: Any) -> str | None:
    """A point by its id, as the server takes it; None: a savepoint in some other directory is
    for the command itself."""
    from holdfast.savepoint.store import SavepointStore

    if origin.startswith("checkpoint:"):
        return origin
    store = SavepointStore(settings.savepoints)
    found = store.find(origin)
    return found.manifest.id if found.path.parent.parent == store.root else None


def start_asked_of_server(
    home: Path | None, job: str, request: OperationRequest, app: Path
) -> dict[str, Any] | None:
    from holdfast.cli.through_server import asked_of_server

    return asked_of_server(
        home, job, request, quiet=True, timeout=request.longest, app=app.absolute()
    )


def _log_to_stderr(level: str) -> None:
    """Our own logger only: the root logger also carries py4j's chatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("holdfast")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
