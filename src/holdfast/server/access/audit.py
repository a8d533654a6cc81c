"""The audit log: every change and every refused login, as a line of JSON, only ever added."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import time_text
from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError
from holdfast.server.access.roles import Actor
from holdfast.storage.files import make_directory


class AuditLog:
    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        make_directory(path.parent)

    def write(self, **fields: Any) -> None:
        line = json.dumps({"at": time_text(self._clock.now()), **fields}, default=str)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with self._lock, os.fdopen(os.open(self.path, flags, 0o600), "a") as file:
            file.write(line + "\n")

    @contextmanager
    def change(
        self, actor: Actor, what: str, *, job: str | None = None, **facts: Any
    ) -> Iterator[dict[str, Any]]:
        """One line for one change, whatever becomes of it. Facts may be added inside."""
        fields: dict[str, Any] = {
            "actor": actor.name,
            "role": actor.role.value,
            "address": actor.address,
            "route": actor.via,
            "what": what,
            "job": job,
            **facts,
        }
        try:
            yield fields
        except HoldfastError as error:
            self.write(**fields, outcome="refused", error=error.name)
            raise
        except BaseException as error:
            self.write(**fields, outcome="failed", error=type(error).__name__)
            raise
        self.write(**fields, outcome="accepted")
