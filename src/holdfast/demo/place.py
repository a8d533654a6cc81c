"""The directory of a demo: what lies where, and whether it may be wiped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.timelines import FIRST
from holdfast.errors import ConflictError
from holdfast.storage.file_sink_log import FileSinkLog
from holdfast.storage.files import exclusive_lock, make_directory, remove_tree, storage_errors

JOB = "wiki-demo"
JOB_FILE = Path(__file__).with_name("job.py")
_SINK_UID = "out"
SECOND = "t1"
THIRD = "t2"
"""The timeline that begins when the job is started from its savepoint."""
_MARK = "HOLDFAST-DEMO"
_MARK_TEXT = (
    "`holdfast demo` made this directory and empties it each time it is run.\n"
    "Without this file it would leave the directory alone.\n"
)


class DemoPlace:
    """The files of a demo, all below one directory."""

    def __init__(self, directory: Path, job: str = JOB) -> None:
        self.directory = directory.expanduser().absolute()
        self.edits = self.directory / "edits"
        self.balances = self.directory / "balances"
        self.log = self.directory / "supervisor.log"
        self.storage = self.directory / "jobs"
        self.job = JobDirectory(self.storage, job)
        self.registry_url = f"sqlite:///{self.directory / 'registry.db'}"
        self.environment: dict[str, str] = {}
        """What the job's processes get besides the user's own."""

    @contextmanager
    def made_anew(self) -> Iterator[None]:
        """Empty and hold the directory; refused if it is not a demo's, or one is at work."""
        mark = self.directory / _MARK
        with storage_errors(self.directory):
            if self.directory.exists() and not mark.exists():
                self._require_empty()
            make_directory(self.directory)
            mark.write_text(_MARK_TEXT, encoding="utf-8")
        with ExitStack() as held:
            self._hold(held, mark)
            with storage_errors(self.directory):
                # The mark stays: what is half emptied is still a demo's.
                for entry in self.directory.iterdir():
                    if entry != mark:
                        remove_tree(entry)
            make_directory(self.edits)
            yield

    def _require_empty(self) -> None:
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            return
        raise ConflictError(
            "NOT_A_DEMO_DIRECTORY",
            f"{self.directory} exists and was not made by `holdfast demo`; it is left alone.",
            fix="give another place with --dir, or an empty directory.",
            path=str(self.directory),
        )

    def _hold(self, held: ExitStack, mark: Path) -> None:
        """Against another demo, and against a driver that outlived the one that started it."""
        try:
            held.enter_context(exclusive_lock(mark, timeout=0))
            if self.job.path.exists():
                with self.job.locked():
                    pass
        except ConflictError as error:
            who = error.message if error.name == "JOB_IS_RUNNING" else "it holds the lock."
            raise ConflictError(
                "DEMO_IS_RUNNING",
                f"another demo is at work in {self.directory}: {who}",
                fix="wait for it or end it, or give this one another place with --dir.",
                path=str(self.directory),
            ) from error


class Progress(ABC):
    """What is committed, read from where it counts: the sink, and Spark's own log.

    The driver reports its epochs too, but a report can die with the driver after the epoch
    was committed.
    """

    def __init__(self, place: DemoPlace) -> None:
        self._place = place
        self.at_savepoint = 0
        """Rows that were there when the job was stopped with its savepoint."""

    @property
    @abstractmethod
    def rows(self) -> int: ...

    @property
    @abstractmethod
    def epochs(self) -> int: ...

    @abstractmethod
    def refresh(self) -> None: ...

    @abstractmethod
    def is_in(self, timeline: str) -> bool:
        """Whether anything of a timeline is committed."""

    def open_epoch(self) -> int | None:
        """The epoch whose input is fixed but which is not committed, if there is one."""
        begun = self._place.job.last_begun()
        return begun if begun != self._place.job.last_committed() else None


class FileProgress(Progress):
    def __init__(self, place: DemoPlace) -> None:
        super().__init__(place)
        self._sinks = [
            FileSinkLog(
                place.balances,
                job_id="",  # only read here, never opened
                job_name=place.job.name,
                sink_uid=_SINK_UID,
                file_format="parquet",
                timeline=timeline,
            )
            for timeline in (FIRST, SECOND, THIRD)
        ]
        self._rows: dict[tuple[str, int], int] = {}

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def epochs(self) -> int:
        return len(self._rows)

    def refresh(self) -> None:
        known, self._rows = self._rows, {}
        for sink in self._sinks:
            for epoch in sink.committed_epochs():
                at = (sink.timeline, epoch)
                self._rows[at] = known[at] if at in known else sink.record(epoch).rows

    def is_in(self, timeline: str) -> bool:
        return any(at[0] == timeline for at in self._rows)
