"""`holdfast run`: a job in the foreground."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import HomeOption, settings_for


def run(
    *,
    app: Annotated[Path, typer.Argument(metavar="APP.py", help="The file with the job.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", help="Which job, if the file has several."),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is there, then end.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="M", help="Spark master.")
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", metavar="N", min=1, help="Partitions.")
    ] = None,
    home: HomeOption = None,
    max_epochs: Annotated[
        int | None,
        typer.Option("--max-epochs", metavar="N", min=1, help="End after so many epochs."),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print progress as JSON lines.")
    ] = False,
) -> int:
    """Run a job in the foreground.

    It goes on from its last checkpoint; without one it begins anew.
    """
    settings = settings_for(home=home, master=master).values
    _log_to_stderr(settings.log_level)
    from holdfast.cli.reporter import JsonReporter, TextReporter
    from holdfast.control.runner import run_app

    return run_app(
        app,
        job_name=job,
        available_now=available_now,
        parallelism=parallelism,
        max_epochs=max_epochs,
        settings=settings,
        reporter=JsonReporter() if json_output else TextReporter(),
    )


def _log_to_stderr(level: str) -> None:
    """Our own logger only: the root logger also carries py4j's chatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("holdfast")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
