"""`holdfast check`: what would hurt in production, before it does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column
from holdfast.cli.plans import show_check

_COLUMNS = [
    Column(key="severity", title="SEVERITY"),
    Column(key="name", title="NAME"),
    Column(key="text", title="FOUND"),
    Column(key="fix", title="FIX"),
    Column(key="docs", title="SEE"),
]


def check(
    *,
    app: Annotated[Path, typer.Argument(metavar="APP.py", help="The file with the job.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", help="Which job, if the file has several."),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="M", help="Spark master.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POINT",
            help="Also say what would become of the state of a savepoint, or of checkpoint:N.",
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option("--parallelism", metavar="N", min=1, help="Partitions, with --from."),
    ] = None,
    allow_dropped: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="With --from: state that the code has no place for may be left behind.",
        ),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Look for what hurts in production. Starts no Spark, unless there is a --from.

    Exit code 1 if there is an error, or if a part of the state would be refused.
    """
    settings = settings_for(home=home, master=master).values
    from holdfast.control.app import load_job
    from holdfast.control.check import gather
    from holdfast.control.lint import Severity, lint

    if start_from is not None:
        from holdfast.control.launch import Launch
        from holdfast.control.restore_check import check_restore

        launch = Launch(
            app=app,
            job_name=job,
            parallelism=parallelism,
            start_from=start_from,
            # Looking does not have to say what is to become of the output.
            sink_choice="keep",
            allow_dropped=allow_dropped,
        )
        return show_check(check_restore(launch, settings), as_json=json_output)
    facts = gather(load_job(app, job), settings)
    findings = lint(facts)
    known = facts.trace.complete
    level = f"guarantee {facts.guarantee.level}, end to end" if known else "guarantee not known"
    counts = {each: sum(found.severity is each for found in findings) for each in Severity}
    rows = [asdict(finding) for finding in findings]
    if json_output:
        output.print_json(
            {
                "job": facts.name,
                "guarantee": facts.guarantee.level if known else None,
                "weak_links": facts.guarantee.weak_links,
                "findings": rows,
                "counts": {str(each): number for each, number in counts.items()},
            }
        )
    else:
        output.write_line(f"job {facts.name}: {level}")
        output.show_rows(rows, _COLUMNS, as_json=False, empty="Nothing found.")
        if rows:
            counted = [_counted(number, each) for each, number in counts.items()]
            output.write_line(", ".join(counted))
    failed = counts[Severity.ERROR] or (strict and counts[Severity.WARNING])
    return 1 if failed else 0


def _counted(number: int, severity: str) -> str:
    return (
        f"{number} {severity}" if number == 1 or severity == "info" else f"{number} {severity}s"
    )
