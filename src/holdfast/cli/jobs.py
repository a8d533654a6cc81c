"""`holdfast ps`, `show` and `attempts`: the jobs of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.checkpoint.kafka_positions import is_position
from holdfast.cli import output
from holdfast.cli.options import (
    HomeOption,
    JobArgument,
    JsonOption,
    open_registry,
    settings_for,
)
from holdfast.cli.output import Column
from holdfast.control.growth import growth
from holdfast.control.job_views import (
    came_from,
    heap_limit_of,
    measured,
    process_is_there,
    sink_rows,
    source_rows,
)

if TYPE_CHECKING:
    from holdfast.control.registry import AttemptRow, JobRow

_JOB_COLUMNS = [
    Column(key="name", title="JOB"),
    Column(key="id", title="ID"),
    Column(key="shown_state", title="STATE"),
    Column(key="attempt", title="ATTEMPT", text=output.optional, right=True),
    Column(key="pid", title="PID", text=output.optional, right=True),
    Column(key="started", title="STARTED", text=output.time_of_day),
    Column(key="epoch", title="EPOCH", text=output.optional, right=True),
    Column(key="updated", title="LAST CHANGE", text=output.time_of_day),
]


def _error_line(error: Any) -> str:
    return "" if error is None else f"{error.name}: {error.message}"


_ATTEMPT_COLUMNS = [
    Column(key="number", title="ATTEMPT", right=True),
    Column(key="state", title="STATE"),
    Column(key="pid", title="PID", right=True),
    Column(key="host", title="HOST"),
    Column(key="started", title="STARTED", text=output.time_of_day),
    Column(key="ended", title="ENDED", text=output.time_of_day),
    Column(key="began_from", title="FROM"),
    Column(key="code", title="CODE"),
    Column(key="failure_class", title="CLASS", text=output.optional),
    Column(key="error", title="ERROR", text=_error_line),
]


_EPOCHS_FOR_GROWTH = 200

_SOURCE_COLUMNS = [
    Column(key="source", title="SOURCE"),
    Column(key="partition", title="PARTITION", text=output.optional),
    Column(key="position", title="POSITION", text=json.dumps),
    Column(key="lag", title="LAG", text=output.count, right=True),
    Column(key="epoch", title="AS OF EPOCH", right=True),
    Column(key="moved", title="LAST MOVED", text=output.time_of_day),
    Column(key="watermark", title="WATERMARK", text=output.optional),
]

_SINK_COLUMNS = [
    Column(key="sink", title="SINK"),
    Column(key="epoch", title="LAST EPOCH", text=output.optional, right=True),
    Column(key="rows", title="ROWS", text=output.count, right=True),
    Column(key="bytes", title="WRITTEN", text=output.size, right=True),
    Column(key="files", title="FILES", text=output.count, right=True),
]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:+,.0f}"


def _limit_in(hours: float | None) -> str:
    return "" if hours is None else f"{hours:,.1f} h"


_STEP_COLUMNS = [
    Column(key="step", title="STEP"),
    Column(key="rows", title="KEYS", text=output.count, right=True),
    Column(key="bytes", title="SIZE", text=output.size, right=True),
    Column(key="rows_per_hour", title="KEYS PER HOUR", text=_rate, right=True),
    Column(key="bytes_per_hour", title="BYTES PER HOUR", text=_rate, right=True),
    Column(key="hours_to_limit", title="LIMIT IN", text=_limit_in, right=True),
]


def ps(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """List the jobs."""
    with open_registry(home) as registry:
        attempts = registry.last_attempts()
        rows = []
        for job in registry.jobs():
            last = registry.last_epoch(job.id)
            rows.append(
                _summary(job, attempts.get(job.id)) | {"epoch": last.epoch if last else None}
            )
    output.show_rows(
        rows,
        _JOB_COLUMNS,
        as_json=json_output,
        empty="There are no jobs yet. Start one with `holdfast run APP.py`.",
    )


def show(
    job: JobArgument,
    sources: Annotated[
        bool,
        typer.Option("--sources", help="Where each source stands, and what each sink has got."),
    ] = False,
    steps: Annotated[
        bool,
        typer.Option("--steps", help="The state of each step, how it grows, and its limit."),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show one job, its last attempt and its last epoch."""
    if sources or steps:
        _show_operators(job, home, sources=sources, steps=steps, as_json=json_output)
        return
    with open_registry(home) as registry:
        row = registry.job(job)
        attempts = registry.attempts(row.id)
        epoch = registry.last_epoch(row.id)
    last = attempts[-1] if attempts else None
    fields = _summary(row, last) | {
        "created": row.created,
        "attempts": len(attempts),
        "error": last.error if last else None,
        "last_epoch": epoch.to_dict() if epoch else None,
        "epoch": epoch.epoch if epoch else None,
        "state_rows": epoch.state_rows if epoch else None,
        "state_bytes": epoch.state_bytes if epoch else None,
        "watermark": epoch.watermark if epoch else None,
        "came_from": came_from(row),
        "info": dict(last.info) if last else {},
        "spec": dict(row.spec),
    }
    columns = [
        *_JOB_COLUMNS,
        Column(key="created", title="CREATED", text=output.time_of_day),
        Column(key="host", title="HOST", text=output.optional),
        Column(key="state_rows", title="STATE ROWS", text=output.count),
        Column(key="state_bytes", title="STATE SIZE", text=output.size),
        Column(key="watermark", title="WATERMARK", text=output.time_of_day),
        Column(key="error", title="LAST ERROR", text=_error_line),
        Column(key="came_from", title="CAME FROM", text=output.optional),
        *(_spec_column(title, text) for title, text in _spec_lines("spec", row.spec)),
    ]
    output.show_fields(fields, columns, as_json=json_output)


def _show_operators(
    job: str, home: Path | None, *, sources: bool, steps: bool, as_json: bool
) -> None:
    with open_registry(home) as registry:
        row = registry.job(job)
        found = registry.epochs(row.id, _EPOCHS_FOR_GROWTH)
        totals = registry.sink_totals(row.id)
    committed = measured(found)
    parts: dict[str, tuple[list[dict[str, Any]], list[Column]]] = {}
    if sources:
        parts["sources"] = (source_rows(committed), _SOURCE_COLUMNS)
        parts["sinks"] = (sink_rows(committed, totals), _SINK_COLUMNS)
    if steps:
        limit = heap_limit_of(row, settings_for(home=home).values.heap_limit)
        rows = [asdict(each) for each in growth(committed, limit)]
        parts["steps"] = (rows, _STEP_COLUMNS)
    if as_json:
        output.print_json({name: rows for name, (rows, _) in parts.items()})
        return
    if sources:
        rows, columns = parts["sources"]
        parts["sources"] = ([line for row in rows for line in _partition_rows(row)], columns)
    for rows, columns in parts.values():
        output.show_rows(rows, columns, as_json=False, empty="There is no epoch yet.")


def _partition_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each partition of a source that has some."""
    if not is_position(row["position"]):
        return [row]
    lags = row["lags"] or {}
    return [
        row
        | {
            "partition": f"{topic}/{partition}",
            "position": offset,
            "lag": lags.get(topic, {}).get(partition),
        }
        for topic, found in sorted(row["position"].items())
        for partition, offset in sorted(found.items(), key=lambda each: int(each[0]))
    ]


def attempts(
    job: JobArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """List every attempt to run a job, with how it ended."""
    with open_registry(home) as registry:
        rows = registry.attempts(registry.job(job).id)
    output.show_rows(
        [
            _fields(row)
            | {"began_from": row.info.get("from", ""), "code": row.info.get("code", "")}
            for row in rows
        ],
        _ATTEMPT_COLUMNS,
        as_json=json_output,
        empty="This job has not been started yet.",
    )


def _spec_lines(title: str, value: Any) -> Iterator[tuple[str, str]]:
    """A line for each value, however deep it lies; none for what was not said."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _spec_lines(f"{title}.{key}", inner)
    elif isinstance(value, bool):
        yield title, "yes" if value else "no"
    elif value is not None:
        yield title, str(value)


def _spec_column(title: str, text: str) -> Column:
    return Column(key="spec", title=title, text=lambda _spec: text)


def _summary(job: JobRow, attempt: AttemptRow | None) -> dict[str, Any]:
    alive = process_is_there(job, attempt)
    return {
        "name": job.name,
        "id": job.id,
        "state": job.state,
        "shown_state": f"{job.state} (process gone)" if alive is False else str(job.state),
        "alive": alive,
        "attempt": attempt.number if attempt else None,
        "pid": attempt.pid if attempt and alive else None,
        "host": attempt.host if attempt else None,
        "started": attempt.started if attempt else None,
        "updated": job.updated,
    }


def _fields(attempt: AttemptRow) -> dict[str, Any]:
    # `asdict` copies deep, and an error is no dataclass.
    return asdict(attempt) | {"error": attempt.error}
