"""The states a job goes through."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    STOPPING = "STOPPING"
    SUSPENDED = "SUSPENDED"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"

    @property
    def is_active(self) -> bool:
        """Whether a process should be there for a job in this state."""
        return self in _ACTIVE


_ACTIVE = {RunState.STARTING, RunState.RUNNING, RunState.RESTARTING, RunState.STOPPING}
