"""Jobs, and what has happened to them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from holdfast.client import models
from holdfast.control.states import RunState
from holdfast.server.routes.common import (
    Cursor,
    JobName,
    Limit,
    OpenMetrics,
    Routes,
    ServiceHere,
)

routes = Routes("jobs", "Jobs of this machine, as they are and as they were.")
TEXT = {200: {"content": {"text/plain": {}}, "description": "Text, as a file to be saved."}}


@routes.get("/jobs")
def list_jobs(
    service: ServiceHere,
    contains: Annotated[str, Query(max_length=64, description="Part of the name.")] = "",
    state: Annotated[list[RunState] | None, Query(description="One or more states.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> models.Page[models.JobSummary]:
    """All jobs, by name."""
    return service.jobs.page(contains=contains, states=state or (), cursor=cursor, limit=limit)


@routes.get("/jobs/{job}")
def get_job(job: JobName, service: ServiceHere, response: Response) -> models.JobDetails:
    """One job. Its ETag changes with the job, and not with every epoch."""
    found = service.jobs.get(job)
    response.headers["ETag"] = f'"{found.version}"'
    return found


@routes.get("/jobs/{job}/attempts")
def list_attempts(
    job: JobName, service: ServiceHere, cursor: Cursor = None, limit: Limit = 50
) -> models.Page[models.Attempt]:
    """Every attempt to run it, the newest first."""
    return service.history.attempts(job, cursor=cursor, limit=limit)


@routes.get("/jobs/{job}/exceptions")
def list_exceptions(job: JobName, service: ServiceHere) -> list[models.Failure]:
    """How attempts failed, the newest first: class, cause, fix."""
    return service.history.failures(job)


@routes.get("/jobs/{job}/epochs")
def list_epochs(
    job: JobName, service: ServiceHere, cursor: Cursor = None, limit: Limit = 50
) -> models.Page[models.Epoch]:
    """Every epoch, which is a checkpoint, of all attempts; the newest first."""
    return service.history.epochs(job, cursor=cursor, limit=limit)


@routes.get("/jobs/{job}/events")
def list_events(job: JobName, service: ServiceHere, limit: Limit = 100) -> list[models.Event]:
    """What happened besides epochs: restarts, lost workers, commands; the newest first."""
    return service.history.events(job, limit=limit)


@routes.get("/jobs/{job}/timelines")
def list_timelines(job: JobName, service: ServiceHere) -> list[models.Timeline]:
    """Each time that the job was taken back, a new timeline began."""
    return service.history.timelines(job)


@routes.get("/jobs/{job}/sources")
def list_sources(job: JobName, service: ServiceHere) -> list[models.SourceState]:
    """Where each source stands, and how much it has that was not read."""
    return service.history.sources(job)


@routes.get("/jobs/{job}/sinks")
def list_sinks(job: JobName, service: ServiceHere) -> list[models.SinkState]:
    """What each sink has got in all epochs."""
    return service.history.sinks(job)


@routes.get("/jobs/{job}/steps")
def list_steps(job: JobName, service: ServiceHere) -> list[models.StepState]:
    """The state of each step, how it grows, and when it reaches its limit."""
    return service.history.steps(job)


@routes.get("/jobs/{job}/watermarks")
def get_watermarks(job: JobName, service: ServiceHere) -> models.Watermarks:
    """The watermark, what holds it back, and late rows."""
    return service.history.watermarks(job)


@routes.get("/jobs/{job}/graph")
def get_graph(job: JobName, service: ServiceHere) -> models.Graph:
    """Sources, stateful steps and sinks, with rates and sizes."""
    return service.history.graph(job)


@routes.get("/jobs/{job}/health")
def get_health(job: JobName, service: ServiceHere) -> models.Health:
    """Whether somebody should look after it."""
    return service.history.health(job)


@routes.get("/jobs/{job}/logs")
def get_log(
    job: JobName,
    service: ServiceHere,
    attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    supervisor: bool = False,
    lines: Annotated[int, Query(ge=0, le=5000)] = 200,
) -> models.LogTail:
    """The end of the log of an attempt (default: the last), or of its supervisor."""
    return service.logs.tail(job, attempt=attempt, supervisor=supervisor, lines=lines)


@routes.get("/jobs/{job}/logs/file", response_class=PlainTextResponse, responses=TEXT)
def download_log(
    job: JobName,
    service: ServiceHere,
    attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    supervisor: bool = False,
) -> StreamingResponse:
    """The whole log as a file."""
    name, lines = service.logs.whole(job, attempt=attempt, supervisor=supervisor)
    return StreamingResponse(
        lines,
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.txt"'},
    )


@routes.get("/jobs/{job}/metrics", response_class=OpenMetrics)
def get_metrics(job: JobName, service: ServiceHere) -> OpenMetrics:
    """The job's metrics in the OpenMetrics format."""
    return OpenMetrics(service.machine.metrics(job=service.backend.job(job).name))
