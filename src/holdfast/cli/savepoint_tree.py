"""`holdfast savepoint tree`: what came from what."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, open_registry, settings_for
from holdfast.cli.output import Branch
from holdfast.errors import HoldfastError, NotFoundError

if TYPE_CHECKING:
    from holdfast.checkpoint.identity import JobIdentity
    from holdfast.control.registry import JobRow
    from holdfast.savepoint.lineage import JobTree, SavepointNode, TimelineNode


def tree(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only the tree of this job.")
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show which savepoints were taken in which timeline, and which were started from them."""
    from holdfast.savepoint.lineage import job_trees
    from holdfast.savepoint.store import SavepointStore

    savepoints, unreadable = SavepointStore(settings_for(home=home).values.savepoints).scan()
    with open_registry(home) as registry:
        rows = registry.jobs()
        if job is not None:
            # Savepoints stay when a job has gone: a name need not be known.
            with suppress(NotFoundError):
                job = registry.job(job).name
    wanted = [row for row in rows if job in (None, row.name)]
    jobs = [identity for row in wanted for identity in _identity(row)]
    trees = [
        each
        for each in job_trees([each.manifest for each in savepoints], jobs)
        if (each.job == job if job else _tells_something(each))
    ]
    for error in unreadable:
        sys.stderr.write(f"{error.name}: {output.clean(error.message)}\n")
    if json_output:
        output.print_json([asdict(each) for each in trees])
    elif trees:
        output.show_trees([_job_branch(each) for each in trees])
    else:
        whose = f" of job {output.clean(job)}" if job else ""
        output.write_line(
            f"There are no savepoints{whose}; `holdfast savepoint take JOB` takes one."
        )


def _identity(row: JobRow) -> Iterator[JobIdentity]:
    """The job as it is now, if it has ever run and can be read."""
    from holdfast.checkpoint.identity import JobDirectory

    try:
        directory = row.spec.get("directory")
        identity = JobDirectory.at(Path(directory)).load() if directory else None
    except HoldfastError as error:
        sys.stderr.write(f"{error.name}: {output.clean(error.message)}\n")
        return
    if identity is not None:
        yield identity


def _tells_something(found: JobTree) -> bool:
    """A job that was never taken back and has no savepoint is left out, unless it is asked
    for."""
    return len(found.timelines) > 1 or any(
        each.savepoints or each.timelines for each in found.timelines
    )


def _job_branch(found: JobTree) -> Branch:
    several = len({each.job_id for each in found.timelines}) > 1
    now = f", now in timeline {found.timeline}" if found.timeline else ""
    return Branch(
        f"job {found.job}{now}",
        tuple(_timeline_branch(each, with_id=several) for each in found.timelines),
    )


def _timeline_branch(
    node: TimelineNode, below: SavepointNode | None = None, *, with_id: bool = False
) -> Branch:
    return Branch(
        ", ".join(_timeline_facts(node, below, with_id=with_id)),
        (
            *(_savepoint_branch(each) for each in node.savepoints),
            *(_timeline_branch(each) for each in node.timelines),
        ),
    )


def _timeline_facts(
    node: TimelineNode, below: SavepointNode | None, *, with_id: bool
) -> Iterator[str]:
    yield f"timeline {node.name}" + (f" of job id {node.job_id}" if with_id else "")
    if node.origin and below is None:
        kind = "" if node.origin.startswith("checkpoint:") else "savepoint "
        whose = f" of job {node.origin_job}" if node.origin_job else ""
        gone = " (not here)" if node.origin_gone else ""
        yield f"from {kind}{node.origin}{whose}{gone}"
    if node.parent:
        yield f"after epoch {node.epoch} of {node.parent}"
        yield f"output beyond it: {node.sinks}"
    if node.began:
        yield f"began {node.began[:19].replace('T', ' ')}Z"
    if node.current:
        yield "the job is here"


def _savepoint_branch(node: SavepointNode) -> Branch:
    label = f" ({node.label})" if node.label else ""
    return Branch(
        f"savepoint {node.id}{label}, epoch {node.epoch}, {output.count(node.keys)} keys, "
        f"{output.size(node.bytes)}, taken {output.time_of_day(node.created)}",
        tuple(_timeline_branch(each, node) for each in node.timelines),
    )
