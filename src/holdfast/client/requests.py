"""What the server can be asked to do. A field that is not known is refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$")]
SavepointId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,95}$")]
Origin = Annotated[
    str, StringConstraints(pattern=r"^(checkpoint:\d{1,12}|[a-z0-9][a-z0-9._-]{0,95})$")
]
Label = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
PathText = Annotated[
    str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Arguments = Annotated[
    dict[Name, Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00]*$")]],
    Field(max_length=100, description="Of the job, by name; its file declares them."),
]
Parallelism = Annotated[int, Field(ge=1, le=4096)]
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
_DIRECTORY = "Where it is expected to run: refused if that would be elsewhere."
SinkChoice = Literal["rewind", "keep", "new"]


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OperationRequest(Request):
    """Long work on a job."""

    kind: ClassVar[str]

    def parameters(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @property
    def longest(self) -> float:
        """How long its own waiting may take."""
        return float(getattr(self, "timeout", 600.0))


class StartRequest(OperationRequest):
    """Start a file that lies below one of the configured roots, or is known already."""

    kind = "start"
    app: PathText = Field(description="The file, on the server's machine.")
    job: Name | None = Field(
        default=None, description="Which job of the file, if it has several."
    )
    name: Name | None = Field(
        default=None, description="What to run it as, if not as the file says."
    )
    parallelism: Parallelism | None = None
    arguments: Arguments = Field(default_factory=dict)
    available_now: bool = Field(default=False, description="Process what is there, then end.")
    max_epochs: Annotated[int, Field(ge=1)] | None = None
    start_from: Origin | None = Field(default=None, description="A savepoint, or checkpoint:N.")
    sink: SinkChoice | None = None
    allow_dropped: bool = False
    directory: PathText | None = Field(default=None, description=_DIRECTORY)


class ResumeRequest(OperationRequest):
    """Run a job again as it was last started."""

    kind = "resume"
    take_over: bool = False


class StopRequest(OperationRequest):
    kind = "stop"
    savepoint: bool = Field(default=False, description="Take a savepoint once it has ended.")
    label: Label = ""
    timeout: Seconds = 180


class SuspendRequest(OperationRequest):
    kind = "suspend"
    timeout: Seconds = 180


class CancelRequest(OperationRequest):
    kind = "cancel"
    timeout: Seconds = 60


class SavepointRequest(OperationRequest):
    kind = "savepoint"
    label: Label = ""
    canonical: bool = Field(default=False, description="State as plain columns; takes Spark.")


class RescaleRequest(OperationRequest):
    kind = "rescale"
    parallelism: Parallelism
    timeout: Seconds = 180


class RollbackRequest(OperationRequest):
    """Go back to a savepoint of the job, or to checkpoint:N; also with another parallelism."""

    kind = "rollback"
    origin: Origin
    sink: SinkChoice | None = None
    parallelism: Parallelism | None = None
    allow_dropped: bool = False
    timeout: Seconds = 180


class UpgradeRequest(OperationRequest):
    kind = "upgrade"
    app: PathText
    healthy_epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    timeout: Seconds = 180


class ForkRequest(OperationRequest):
    """A job of its own from the state of another one, or of a savepoint."""

    kind = "fork"
    name: Name = Field(description="Of the new job.")
    savepoint: SavepointId | None = Field(
        default=None, description="Default: one is taken now."
    )
    app: PathText | None = Field(
        default=None, description="Its code; default: that of the job."
    )
    job: Name | None = Field(
        default=None, description="Which job of the file, if it has several."
    )
    parallelism: Parallelism | None = None
    arguments: Arguments = Field(default_factory=dict)
    available_now: bool = False
    allow_dropped: bool = False
    directory: PathText | None = Field(default=None, description=_DIRECTORY)


class PromoteRequest(OperationRequest):
    """Let the job that was forked go on with what its fork has."""

    kind = "promote"
    sink: SinkChoice | None = None
    timeout: Seconds = 180


class CompareRequest(OperationRequest):
    """What a job and its fork, in either order, have written to files since the fork. The
    comparison is the operation's result; nothing is changed."""

    kind = "compare"
    other: Name = Field(description="The other one of the two.")
    sink: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="Only this sink."
    )
    limit: Annotated[int, Field(ge=0, le=100)] = Field(
        default=10, description="Rows to show of each job that the other one has not."
    )


class VerifyRequest(OperationRequest):
    kind = "verify"


class ExportRequest(OperationRequest):
    """A canonical savepoint of the same state."""

    kind = "export"


class QueryRequest(Request):
    sql: Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    fresh: bool = Field(
        default=False, description="Of a job: its newest epoch, not one seen before."
    )


class DiffRequest(Request):
    before: Name | SavepointId
    after: Name | SavepointId
    table: str | None = Field(default=None, max_length=200)
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class LinkRequest(Request):
    role: Literal["viewer", "operator"] = "operator"


class LoginRequest(Request):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200)]
