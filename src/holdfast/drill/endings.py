"""How an attempt that a drill strikes must end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The error's name and its class."""

    error: str
    failure_class: str


DIED = Ended(error="DRIVER_DIED", failure_class="lost_driver")
JVM_DIED = Ended(error="JVM_DIED", failure_class="lost_driver")
LOST = Ended(error="ATTEMPT_LOST", failure_class="lost_driver")
WORKER_DIED = Ended(error="PYTHON_WORKER_DIED", failure_class="lost_worker")
FENCED = Ended(error="FENCED", failure_class="conflict")
HUNG = Ended(error="DRIVER_HUNG", failure_class="hung")
FULL = Ended(error="DISK_FULL", failure_class="resource")
UNWRITABLE = Ended(error="STORAGE_ERROR", failure_class="resource")
OUT_OF_MEMORY = Ended(error="OUT_OF_MEMORY", failure_class="resource")
TOO_LONG = Ended(error="EPOCH_TIMEOUT", failure_class="hung")
USER_CODE = Ended(error="USER_FUNCTION_FAILED", failure_class="code")
