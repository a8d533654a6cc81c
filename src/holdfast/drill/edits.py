"""The input of a drill: edits that land in the log when the drill says so."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from holdfast.demo.producer import demo_edits
from holdfast.storage.filelog import FileLogProducer

_ENOUGH = 100_000
_SEED = 3


class Edits:
    """A file log that is written some segments at a time."""

    def __init__(self, log: Path, *, segment: int = 150) -> None:
        self._log, self._segment = log, segment
        self._edits = demo_edits(_ENOUGH, seed=_SEED)
        self.sent = 0

    def send(self, segments: int) -> None:
        with FileLogProducer(
            self._log, producer_id=f"p{self.sent}", max_records=self._segment
        ) as log:
            for edit in islice(self._edits, segments * self._segment):
                log.send(edit)
                self.sent += 1
