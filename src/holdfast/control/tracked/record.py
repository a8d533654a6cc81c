"""What is known of one operation. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.errors import HoldfastError


class OperationState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    """Somebody does not want it any more; it holds the job until its process is gone."""
    CANCELLED = "CANCELLED"
    """It was ended on purpose; the error says what to do about the job."""
    INTERRUPTED = "INTERRUPTED"
    """Its process died, and it is not tried again; the error says what to do."""

    @property
    def is_open(self) -> bool:
        return self in OPEN


WANTED = (OperationState.PENDING, OperationState.RUNNING)
"""To be carried out, by whatever process."""
OPEN = (*WANTED, OperationState.CANCELLING)


@dataclass(frozen=True, kw_only=True)
class OperationProgress:
    what: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class OperationWorker:
    """The process that carries it out."""

    pid: int
    started: int | None
    """Pids are used again: see :mod:`holdfast.storage.processes`."""
    host: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    id: str
    job: str
    kind: str
    state: OperationState
    parameters: Mapping[str, Any]
    asked_by: str
    key: str | None
    created: datetime
    started: datetime | None
    ended: datetime | None
    updated: datetime
    tries: int
    """How many processes it was handed out to."""
    worker: OperationWorker | None
    progress: OperationProgress | None
    lines: tuple[str, ...]
    """What it has said so far."""
    result: Mapping[str, Any] | None
    error: HoldfastError | None
