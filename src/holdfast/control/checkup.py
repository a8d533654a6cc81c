"""What is left of a job's checkpoint, and what going back to it would cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.checkup import EpochHealth, examine_epochs
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochStatus
from holdfast.control.launch import Launch
from holdfast.control.registry import JobRow, Registry
from holdfast.errors import NotFoundError
from holdfast.savepoint.store import Progress, silent


@dataclass(frozen=True, kw_only=True)
class Checkup:
    job: str
    epochs: tuple[EpochHealth, ...]
    """Newest first."""
    again_epochs: int = 0
    again_rows: int = 0
    """What would be read once more, after the newest epoch that can be restored."""
    app: str = "APP.py"

    @property
    def restorable(self) -> int | None:
        return next((each.epoch for each in self.epochs if each.problem is None), None)

    @property
    def sentence(self) -> str:
        if not self.epochs:
            return f"job {self.job} has no committed epoch."
        if self.restorable is None:
            return f"none of the {len(self.epochs)} epochs that job {self.job} keeps is whole."
        newest = f"job {self.job}: the newest epoch that can be restored is {self.restorable}"
        if self.restorable == self.epochs[0].epoch:
            return f"{newest}, its last one; it keeps {len(self.epochs)}."
        return (
            f"{newest}; {self.again_epochs:,} epochs with {self.again_rows:,} input rows would "
            "be read again."
        )

    @property
    def fix(self) -> str:
        """Empty if nothing has to be done."""
        if not self.epochs or self.restorable == self.epochs[0].epoch:
            return ""
        if self.restorable is None:
            return "start from a savepoint (`holdfast savepoint list`), or restore a backup."
        return f"holdfast run {self.app} --from checkpoint:{self.restorable} --sink rewind"

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "restorable": self.restorable,
            "read_again": {"epochs": self.again_epochs, "rows": self.again_rows},
            "fix": self.fix or None,
            "epochs": [
                {
                    "epoch": each.epoch,
                    "error": each.problem.name if each.problem else None,
                    "problem": each.problem.message if each.problem else None,
                }
                for each in self.epochs
            ],
        }


def check_up(registry: Registry, row: JobRow, progress: Progress = silent) -> Checkup:
    """Reads every file that is kept; changes nothing."""
    directory = JobDirectory.at(Path(row.spec["directory"]))
    epochs = examine_epochs(
        directory.checkpoint, lambda done, total: progress("epochs", done, total)
    )
    found = Checkup(job=row.name, epochs=tuple(epochs), app=_app(row))
    if not found.fix or found.restorable is None:
        return found
    records = [
        record
        for record in registry.epochs(row.id)
        if record.status is EpochStatus.COMMITTED and record.epoch > found.restorable
    ]
    newest = {record.epoch: record for record in records}
    return Checkup(
        job=row.name,
        epochs=tuple(epochs),
        app=found.app,
        again_epochs=len(newest),
        again_rows=sum(record.input_rows for record in newest.values()),
    )


def _app(row: JobRow) -> str:
    try:
        return str(Launch.from_spec(row.name, row.spec).app)
    except NotFoundError:
        return "APP.py"
