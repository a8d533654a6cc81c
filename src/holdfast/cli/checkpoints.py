"""`holdfast checkpoints`: every epoch of a job, while it runs and after it is gone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JobArgument, JsonOption, open_registry
from holdfast.cli.output import Column

if TYPE_CHECKING:
    from holdfast.checkpoint.record import EpochRecord
    from holdfast.control.registry import Registry

POLL_SECONDS = 0.5
_OVER = {"FINISHED", "FAILED", "CANCELED", "SUSPENDED"}


def _phases(phases: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {output.seconds(spent)}" for name, spent in phases.items())


_COLUMNS = [
    Column(key="epoch", title="EPOCH", right=True),
    Column(key="attempt", title="ATTEMPT", right=True),
    Column(key="status", title="STATUS"),
    Column(key="started", title="STARTED", text=output.time_of_day),
    Column(key="seconds", title="TOOK", text=output.seconds, right=True),
    Column(key="phases", title="BY PHASE", text=_phases),
    Column(key="input_rows", title="ROWS IN", text=output.count, right=True),
    Column(key="skipped_rows", title="SKIPPED", text=output.count, right=True),
    Column(key="late_rows", title="LATE", text=output.count, right=True),
    Column(key="output_rows", title="ROWS OUT", text=output.count, right=True),
    Column(key="bytes_written", title="WRITTEN", text=output.size, right=True),
    Column(key="state_rows", title="STATE ROWS", text=output.count, right=True),
    Column(key="state_bytes", title="STATE SIZE", text=output.size, right=True),
    Column(key="checkpoint_bytes", title="CHECKPOINT", text=output.size, right=True),
    Column(key="checkpoint_kind", title="KIND"),
    Column(key="watermark", title="WATERMARK", text=output.time_of_day),
]


def checkpoints(
    job: JobArgument,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", metavar="N", min=1, help="Only the newest N."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new epochs until Ctrl-C.")
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show every epoch of a job.

    Duration by phase, rows, bytes, state and checkpoint size, for all attempts.

    With --follow and --json every record is one line.
    """
    with open_registry(home) as registry:
        job_id = registry.job(job).id
        if follow:
            _follow(registry, job_id, last, as_json=json_output)
            return
        records = registry.epochs(job_id, last)
    output.show_rows(
        [_row(record) for record in records],
        _COLUMNS,
        as_json=json_output,
        empty="This job has no epochs yet.",
    )


def _row(record: EpochRecord) -> dict[str, Any]:
    return record.to_dict() | {
        "started": record.started,
        "ended": record.ended,
        "watermark": record.watermark,
        "seconds": record.seconds,
        "late_rows": record.late_rows,
        "state_rows": record.state_rows,
        "state_bytes": record.state_bytes,
    }


def _follow(registry: Registry, job_id: str, last: int | None, *, as_json: bool) -> None:
    """Print epochs as they end, until the job has ended.

    A job that was killed still counts as running, so following spans a crash and resume.
    """
    records = registry.epochs(job_id, last)
    settled = (records[0].attempt, records[0].epoch - 1) if records else (0, -1)
    while True:
        # Asked before the records are read: what a job wrote before it ended is not missed.
        over = registry.job(job_id).state in _OVER
        for record in registry.epochs(job_id, after=settled):
            if record.status == "RUNNING":
                break  # it is shown when it has ended, and before those that come after it
            settled = (record.attempt, record.epoch)
            _print_epoch(record, as_json=as_json)
        if over:
            return
        time.sleep(POLL_SECONDS)


def _print_epoch(record: EpochRecord, *, as_json: bool) -> None:
    if as_json:
        output.print_json_line(_row(record))
    else:
        output.write_fields_line(_row(record), _COLUMNS)
