"""What kind of failure ended an attempt: it decides whether trying again makes sense."""

from __future__ import annotations

import re
from enum import StrEnum

from holdfast.errors import (
    BadRecordError,
    ConflictError,
    CorruptionError,
    DataError,
    EnvironmentProblem,
    HoldfastError,
    NotFoundError,
    OutputSchemaError,
    UsageError,
    UserCodeError,
)


class FailureClass(StrEnum):
    """The words of `attempts`, of metrics and of `also_retry`."""

    CODE = "code"
    """The user's code or declaration is wrong."""
    BAD_RECORD = "bad_record"
    """A record that does not parse, or that the code cannot take."""
    CORRUPTION = "corruption"
    """Stored bytes are missing or are not what was written."""
    CONFLICT = "conflict"
    """Somebody else has the job, or the code does not fit its state."""
    RESOURCE = "resource"
    """Memory, disk, file handles."""
    DEPENDENCY = "dependency"
    """A system that the job talks to does not answer."""
    LOST_WORKER = "lost_worker"
    """A Python worker or an executor died."""
    LOST_DRIVER = "lost_driver"
    """The driver process died, or was killed."""
    HUNG = "hung"
    """No heartbeat, or an epoch that took too long."""
    UNKNOWN = "unknown"

    @property
    def can_heal(self) -> bool:
        """Whether the same attempt may succeed later, with nobody doing anything."""
        return self not in _FOR_PEOPLE


_FOR_PEOPLE = {
    FailureClass.CODE,
    FailureClass.BAD_RECORD,
    FailureClass.CORRUPTION,
    FailureClass.CONFLICT,
}

# The first class whose kind of error matches, so subclasses come before their bases.
_BY_KIND: tuple[tuple[type[HoldfastError], FailureClass], ...] = (
    (BadRecordError, FailureClass.BAD_RECORD),
    (UserCodeError, FailureClass.CODE),
    (OutputSchemaError, FailureClass.CODE),
    (UsageError, FailureClass.CODE),
    (DataError, FailureClass.BAD_RECORD),
    (CorruptionError, FailureClass.CORRUPTION),
    (ConflictError, FailureClass.CONFLICT),
    (NotFoundError, FailureClass.DEPENDENCY),
    (EnvironmentProblem, FailureClass.RESOURCE),
)
_BY_NAME = {
    "PYTHON_WORKER_DIED": FailureClass.LOST_WORKER,
    "EXECUTOR_LOST": FailureClass.LOST_WORKER,
    "DRIVER_DIED": FailureClass.LOST_DRIVER,
    "JVM_DIED": FailureClass.LOST_DRIVER,
    "ATTEMPT_LOST": FailureClass.LOST_DRIVER,
    "DRIVER_HUNG": FailureClass.HUNG,
    "EPOCH_TIMEOUT": FailureClass.HUNG,
    "START_TIMEOUT": FailureClass.HUNG,
    "BROKER_UNREACHABLE": FailureClass.DEPENDENCY,
    "SERVICE_UNREACHABLE": FailureClass.DEPENDENCY,
    "KAFKA_WRITE_FAILED": FailureClass.DEPENDENCY,
    "PRODUCER_FENCED": FailureClass.DEPENDENCY,
    "TRANSACTION_STILL_OPEN": FailureClass.DEPENDENCY,
    "RECORD_TOO_LARGE": FailureClass.BAD_RECORD,
    "LEASE_LOST": FailureClass.CONFLICT,
    "FENCED": FailureClass.CONFLICT,
}
# In what Spark says about the root cause of a failure that has no name of its own.
_BY_TEXT = (
    (
        re.compile(
            r"ConnectException|Connection refused|UnknownHostException|TimeoutException|"
            r"SocketTimeout|NoRouteToHost|Connection reset|could not connect|"
            r"BrokerNotAvailable",
            re.IGNORECASE,
        ),
        FailureClass.DEPENDENCY,
    ),
    (
        re.compile(r"ExecutorLostFailure|Executor heartbeat timed out|Lost executor"),
        FailureClass.LOST_WORKER,
    ),
    (
        re.compile(r"OutOfMemory|No space left|Too many open files|Cannot allocate memory"),
        FailureClass.RESOURCE,
    ),
)


def classify(error: HoldfastError) -> FailureClass:
    """The class of what ended an attempt."""
    if error.name in _BY_NAME:
        return _BY_NAME[error.name]
    for kind, failure_class in _BY_KIND:
        if isinstance(error, kind):
            return failure_class
    text = f"{error.message}\n{error.facts.get('detail', '')}"
    for pattern, failure_class in _BY_TEXT:
        if pattern.search(text):
            return failure_class
    return FailureClass.UNKNOWN
