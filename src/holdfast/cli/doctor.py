"""`holdfast doctor`: is this machine fit to run jobs, and is what a job has kept whole?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, open_registry, settings_for
from holdfast.cli.output import Column
from holdfast.errors import CorruptionError, EnvironmentProblem

_COLUMNS = [
    Column(key="check", title="CHECK"),
    Column(key="status", title="STATUS"),
    Column(key="found", title="FOUND"),
    Column(key="fix", title="FIX"),
]
_EPOCHS = [
    Column(key="epoch", title="EPOCH", right=True),
    Column(key="problem", title="PROBLEM", text=lambda text: output.clean(text or "none")),
]


def doctor(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Instead: look through the checkpoint of a job."),
    ] = None,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Check too that jobs can use Kafka; starts Spark."),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Check this machine, and say the fix for each finding.

    With JOB: which of its epochs can be restored, which files of the others are missing or
    damaged, and what going back would cost.
    """
    if job is not None:
        return _checkpoint(job, home, as_json=json_output)
    from holdfast.control.doctor import Status, examine

    settings = settings_for(home=home).values
    more: list[Any] = []
    if kafka or settings.kafka_jars:
        from holdfast.control.kafka.checkup import kafka_client, kafka_connector

        connector = kafka_connector(settings.kafka_packages, settings.kafka_jars)
        more = [("kafka client", kafka_client), ("kafka connector", connector)]
    findings = examine(settings.home, settings.storage, settings.registry_url, more)
    rows = [asdict(finding) for finding in findings]
    output.show_rows(rows, _COLUMNS, as_json=json_output)
    failed = any(finding.status is Status.FAIL for finding in findings)
    return EnvironmentProblem.exit_code if failed else 0


def _checkpoint(job: str, home: Path | None, *, as_json: bool) -> int:
    from holdfast.cli.savepoint import shown_progress
    from holdfast.control.checkup import check_up

    with open_registry(home) as registry, shown_progress(quiet=as_json) as progress:
        found = check_up(registry, registry.job(job), progress)
    if as_json:
        output.print_json(found.to_dict())
    else:
        rows: list[dict[str, Any]] = found.to_dict()["epochs"]
        bad = [row for row in rows if row["problem"]]
        output.show_rows(bad, _EPOCHS, as_json=False, empty="All epochs can be restored.")
        output.write_line(output.clean(found.sentence))
        if found.fix:
            output.write_line(f"Fix: {output.clean(found.fix)}")
    return CorruptionError.exit_code if found.fix else 0
