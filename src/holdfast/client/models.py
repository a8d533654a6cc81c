"""What the server answers. The client and the web pages use these; nothing here needs FastAPI.

An answer may have fields that an older client does not know: it leaves them out. Times are in
UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Page(Answer, Generic[Item]):
    items: list[Item]
    next: str | None = Field(
        default=None, description="Give this as `cursor` for the page behind it."
    )


class Trouble(Answer):
    """A holdfast error: its name does not change between versions."""

    name: str
    message: str
    fix: str = ""
    kind: str = Field(default="HoldfastError", description="The class of the error in Python.")
    facts: dict[str, Any] = {}


class Problem(Answer):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    name: str
    fix: str = ""
    kind: str = "HoldfastError"
    facts: dict[str, Any] = {}
    id: str | None = Field(
        default=None, description="Of an error of the server: its log has the rest."
    )


# -- jobs -------------------------------------------------------------------------------


class JobSummary(Answer):
    name: str
    id: str
    state: str
    alive: bool | None = Field(
        description="Whether the process of an active job is there; null if it cannot be known."
    )
    running: bool = Field(description="Whether a living process holds the job.")
    attempt: int | None
    pid: int | None
    host: str | None
    started: datetime | None = Field(description="When the last attempt began.")
    updated: datetime
    uptime_seconds: float | None
    restarts: int = Field(description="Attempts after the first one.")
    epoch: int | None = Field(description="The last committed one.")
    epoch_ended: datetime | None
    rows_per_second: float | None = Field(description="Over the newest epochs.")
    recent_rows: list[int] = Field(description="Input of the newest epochs, oldest first.")
    lag: int | None = Field(description="Records that the sources have and the job has not.")
    state_rows: int | None
    state_bytes: int | None
    watermark: datetime | None
    error: Trouble | None = Field(description="How the last attempt failed, if it did.")
    operation: str | None = Field(description="The operation that holds the job now.")
    version: str = Field(description="Its ETag: another one after every change to the job.")


class JobDetails(JobSummary):
    created: datetime
    timeline: str | None
    timelines: int
    parallelism: int | None
    key_groups: int | None
    backend: str | None
    code: str
    came_from: str | None
    forked_from: str | None = Field(description="The job that it was forked from, if any.")
    app: str | None
    directory: str
    spec: dict[str, Any]
    info: dict[str, Any]


class Attempt(Answer):
    number: int
    state: str
    pid: int
    host: str
    started: datetime
    ended: datetime | None
    began_from: str
    code: str
    failure_class: str | None
    error: Trouble | None


class Failure(Answer):
    """An attempt that failed: what the page of exceptions shows."""

    attempt: int
    at: datetime
    failure_class: str | None
    error: Trouble
    retried: bool


class Event(Answer):
    at: datetime
    kind: str
    text: str
    attempt: int | None
    data: dict[str, Any]


class Size(Answer):
    rows: int
    bytes: int


class SinkEpoch(Size):
    files: int = 0
    skipped: bool = False


class Epoch(Answer):
    epoch: int
    attempt: int
    status: Literal["RUNNING", "COMMITTED", "INTERRUPTED"]
    started: datetime
    ended: datetime | None
    seconds: float | None
    phases: dict[str, float]
    input_rows: int
    skipped_rows: int
    output_rows: int
    late_rows: int
    bytes_written: int
    checkpoint_bytes: int
    checkpoint_kind: str
    state_rows: int
    state_bytes: int
    state: dict[str, Size]
    sinks: dict[str, SinkEpoch]
    late: dict[str, int]
    watermark: datetime | None
    offsets: dict[str, Any]
    lag: dict[str, int]


class SourceState(Answer):
    source: str
    position: Any
    lag: int | None
    lags: Mapping[str, Any] | None = Field(description="By topic and partition, of Kafka.")
    epoch: int
    moved: datetime | None = Field(description="When it last had something new.")
    watermark: str | None = Field(description="What it does to the watermark, in words.")
    waited_for: bool | None


class SinkState(Answer):
    sink: str
    epoch: int | None
    rows: int
    bytes: int
    files: int


class StepState(Answer):
    step: str
    rows: int
    bytes: int
    rows_per_hour: float | None
    bytes_per_hour: float | None
    hours_to_limit: float | None


class Watermarks(Answer):
    watermark: datetime | None
    behind_seconds: float | None = Field(description="How far it is behind the last epoch.")
    late_rows: dict[str, int] = Field(description="In all epochs, by step.")
    late_in_last_epoch: dict[str, int]
    sources: list[SourceState]


class Node(Answer):
    uid: str
    kind: Literal["source", "process", "native", "sink"]
    detail: str = ""
    rows_per_second: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    late_rows: int | None = None
    lag: int | None = None


class Graph(Answer):
    nodes: list[Node]
    edges: list[tuple[str, str]]


class Health(Answer):
    job: str
    status: Literal["ok", "warning", "failed", "stopped"]
    reasons: list[str]


class LogTail(Answer):
    job: str
    file: str
    size: int
    lines: list[str]


# -- operations -------------------------------------------------------------------------


class Progress(Answer):
    what: str
    done: int
    total: int


OperationStateName = Literal[
    "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLING", "CANCELLED", "INTERRUPTED"
]


class Operation(Answer):
    id: str
    job: str
    kind: str
    state: OperationStateName
    parameters: dict[str, Any]
    asked_by: str
    created: datetime
    started: datetime | None
    ended: datetime | None
    updated: datetime
    tries: int
    progress: Progress | None
    lines: list[str]
    result: dict[str, Any] | None
    error: Trouble | None

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING", "CANCELLING")


# -- savepoints -------------------------------------------------------------------------


class Savepoint(Answer):
    id: str
    job: str
    label: str
    created: datetime
    epoch: int
    timeline: str
    parallelism: int
    backend: str
    format: str
    code: str
    keys: int
    steps: dict[str, int]
    bytes: int
    files: int
    parent: str | None


class SavepointStep(Answer):
    uid: str
    kind: str
    keys: int | None
    variables: dict[str, str]
    detail: str


class SavepointDetails(Savepoint):
    sources: dict[str, Any]
    watermark: datetime | None
    key_groups: int
    holdfast: str
    spark: str
    edits: list[str]
    operators: list[SavepointStep]
    used_by: list[str] = Field(description="Timelines that were started from it.")


class SavepointPage(Page[Savepoint]):
    unreadable: list[Trouble] = Field(description="Directories that are damaged savepoints.")


class TreeSavepoint(Answer):
    id: str
    label: str
    epoch: int
    keys: int
    bytes: int
    created: datetime
    parent: str | None = None
    timelines: list[TreeTimeline] = []


class TreeTimeline(Answer):
    name: str
    job_id: str
    parent: str | None = None
    epoch: int | None = None
    origin: str = ""
    origin_job: str | None = None
    origin_gone: bool = False
    sinks: str = "keep"
    began: str = ""
    current: bool = False
    savepoints: list[TreeSavepoint] = []
    timelines: list[TreeTimeline] = []


class Tree(Answer):
    job: str
    timeline: str | None
    timelines: list[TreeTimeline]


class Timeline(Answer):
    name: str
    parent: str | None
    epoch: int | None
    origin: str
    sinks: str
    began: str
    current: bool


# -- state ------------------------------------------------------------------------------


class StateTable(Answer):
    table: str
    kind: str
    keys: int
    columns: dict[str, str]


class StateTables(Answer):
    of: str
    title: str = Field(description="Which moment it is: a savepoint, or an epoch of a job.")
    tables: list[StateTable]


class StateRows(Answer):
    of: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    cut: bool = Field(description="Whether there are more.")


class TableDiff(Answer):
    table: str
    keys_before: int
    keys_after: int
    added: int
    removed: int
    changed: int
    columns: list[str]
    rows: list[list[Any]]
    cut: bool


class StateDiff(Answer):
    before: str
    after: str
    same: bool
    tables: list[TableDiff]


# -- the machine ------------------------------------------------------------------------


class ConfigEntry(Answer):
    key: str
    value: str
    origin: str


class ClusterMember(Answer):
    name: str
    state: str
    pid: int | None
    cores: int | None
    cores_used: int | None
    executors: list[int] = Field(description="Processes in which a worker runs tasks of jobs.")
    memory: str | None
    since: datetime | None


class Cluster(Answer):
    url: str | None
    members: list[ClusterMember]


class KilledWorker(Answer):
    worker: str
    pids: list[int]


class Claim(Answer):
    job: str
    cores: int
    memory: int


class Session(Answer):
    """What the jobs of this machine may take together, and what they have taken."""

    cores: int | None
    memory: int | None
    cores_used: int
    memory_used: int
    claims: list[Claim]


class AppFile(Answer):
    """A file that may be started."""

    path: str
    jobs: list[str] = Field(
        description="Names of jobs that it declares, as far as written out."
    )
    registered: bool = Field(description="Whether a job of the registry was started from it.")


class ServerInfo(Answer):
    version: str
    spark: str
    python: str = Field(default="", description="The interpreter that runs it, and jobs.")
    started: datetime
    home: str
    storage: str
    savepoints: str
    registry: str
    master: str
    jobs: int
    job_roots: list[str]


class LoginLink(Answer):
    url: str
    seconds: int = Field(description="How long it works; and it works once.")


class WhoAmI(Answer):
    name: str
    role: Literal["viewer", "operator"]
    csrf: str | None = Field(description="For the header X-CSRF-Token, if a cookie was used.")
