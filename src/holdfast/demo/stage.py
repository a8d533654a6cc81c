"""What the demo is played on: files, or Kafka. The story is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from holdfast.demo.place import JOB_FILE, DemoPlace, FileProgress, Progress
from holdfast.demo.proof import Proof, prove
from holdfast.storage.filelog import FileLogProducer


class EditLog(Protocol):
    """Takes edits; they are there for good after `flush`."""

    def send(self, edit: Mapping[str, Any], /) -> object: ...

    def flush(self) -> object: ...


class Stage(Protocol):
    job_file: Path
    second_version: Path
    source: str
    """Where the edits go, in words."""
    reader: str
    """What the proof reads, in words."""
    rollback_sink: str
    """What becomes of the output when the job is rolled back."""
    progress: Progress

    def prepared(self) -> AbstractContextManager[None]:
        """Around the whole story."""

    def edit_log(self) -> AbstractContextManager[EditLog]: ...

    def prove(self, edits: int) -> Proof: ...


class FileStage:
    """An embedded file log, and Parquet files."""

    job_file = JOB_FILE
    second_version = Path(__file__).with_name("kilobytes.py")
    reader = "the log and the Parquet files"
    rollback_sink = "rewind"

    def __init__(self, place: DemoPlace) -> None:
        self._place = place
        self.source = str(place.edits)
        self.progress: Progress = FileProgress(place)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        yield

    def edit_log(self) -> FileLogProducer:
        # A segment ends when it is told to.
        return FileLogProducer(
            self._place.edits, producer_id="wiki", max_records=10**9, max_delay="1 h"
        )

    def prove(self, edits: int) -> Proof:
        return prove(self._place.edits, self._place.balances, edits)
