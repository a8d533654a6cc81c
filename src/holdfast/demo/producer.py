"""Appends synthetic edits to a log, at the pace of a stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import Any, Self

from holdfast.demo.edits import generate
from holdfast.demo.stage import EditLog

USERS = 5_000
SEGMENTS = 100
_NAMELESS_EVERY = 499
_UNTIL_KILL, _UNTIL_RESTARTED, _UNTIL_UPGRADED = 0.4, 0.65, 0.9
"""Shares of the stream after which a slow machine is waited for, so that edits still arrive
when the driver is killed, when the job has restarted, and when its second version runs."""


def demo_edits(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Edits with a number each; of some the user is unknown, as in the real stream."""
    for number, edit in enumerate(generate(count, users=USERS, seed=seed), start=1):
        if number % _NAMELESS_EVERY == 0:
            edit["user"] = None  # an administrator has hidden the name
        yield {"edit": number, **edit}


def seconds_for(edits: int) -> float:
    """How long the stream lasts: 4,000 edits per second, within what is fun to watch."""
    return min(60.0, max(20.0, edits / 4_000))


class EditProducer:
    """A thread that appends `edits` edits in equal segments, evenly over `seconds`."""

    def __init__(
        self,
        open_log: Callable[[], AbstractContextManager[EditLog]],
        *,
        edits: int,
        seed: int,
        seconds: float,
    ) -> None:
        self._open_log, self._edits, self._seed = open_log, edits, seed
        self._pause = seconds / SEGMENTS
        self._limit = _UNTIL_KILL
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="demo-producer", daemon=True)
        self.produced = 0
        """Edits that are in the log for good."""
        self.error: Exception | None = None

    @property
    def finished(self) -> bool:
        return self.produced == self._edits

    def after_kill(self) -> None:
        self._allow(_UNTIL_RESTARTED)

    def after_restart(self) -> None:
        self._allow(_UNTIL_UPGRADED)

    def after_upgrade(self) -> None:
        self._allow(1.0)

    def _allow(self, share: float) -> None:
        with self._changed:
            self._limit = share
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._produce()
        except Exception as error:  # handed to the story, which runs in another thread
            self.error = error

    def _produce(self) -> None:
        edits = demo_edits(self._edits, self._seed)
        with self._open_log() as log:
            due = time.monotonic()
            for segment in range(1, SEGMENTS + 1):
                end = self._edits * segment // SEGMENTS
                for edit in islice(edits, end - self.produced):
                    log.send(edit)
                log.flush()
                self.produced = end
                due = max(due + self._pause, time.monotonic())
                if not self._wait(due, segment / SEGMENTS):
                    return

    def _wait(self, due: float, share: float) -> bool:
        """Until the next segment is due and allowed; False if there shall be none."""
        with self._changed:
            while not self._stopped:
                held = share >= self._limit and share < 1
                left = due - time.monotonic()
                if left <= 0 and not held:
                    return True
                self._changed.wait(None if held else left)
        return False
