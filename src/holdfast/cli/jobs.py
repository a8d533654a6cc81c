"""`holdfast ps`, `show` and `attempts`: the jobs of the registry."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JobArgument, JsonOption, open_registry
from holdfast.cli.output import Column

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
    Column(key="error", title="ERROR", text=_error_line),
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


def show(job: JobArgument, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Show one job, its last attempt and its last epoch."""
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
        *(_spec_column(fields, key) for key in row.spec),
    ]
    output.show_fields(fields, columns, as_json=json_output)


def attempts(
    job: JobArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """List every attempt to run a job, with how it ended."""
    with open_registry(home) as registry:
        rows = registry.attempts(registry.job(job).id)
    output.show_rows(
        [_fields(row) for row in rows],
        _ATTEMPT_COLUMNS,
        as_json=json_output,
        empty="This job has not been started yet.",
    )


def _spec_column(fields: Any, key: str) -> Column:
    value = fields["spec"][key]
    return Column(key="spec", title=f"spec.{key}", text=lambda _spec: str(value))


def _summary(job: JobRow, attempt: AttemptRow | None) -> dict[str, Any]:
    alive = _is_alive(job, attempt)
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


def _is_alive(job: JobRow, attempt: AttemptRow | None) -> bool | None:
    """Whether the process of a job that should have one is there; None if unknown.

    After kill -9 nobody is left to write the end into the registry.
    """
    if attempt is None or not job.state.is_active or attempt.host != socket.gethostname():
        return None
    try:
        os.kill(attempt.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, but it is somebody else's
        return True
    return True


def _fields(attempt: AttemptRow) -> dict[str, Any]:
    # `asdict` copies deep, and an error is no dataclass.
    return asdict(attempt) | {"error": attempt.error}
