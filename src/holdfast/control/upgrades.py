"""An upgrade that is under way, noted in the job's directory until new code is judged.

The registry knows how a job was started last, and from the first step of an upgrade on that is
the new code. If the command dies while it watches, only this note knows what to go back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.identity import JobDirectory
from holdfast.control.launch import Launch
from holdfast.control.registry import JobRow
from holdfast.storage.files import read_json, write_json

FORMAT_VERSION = 1
_NOTE = "upgrade.json"


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    app: str
    """The new code."""
    savepoint: str
    """Where it began, and where the old code goes on if it fails."""
    before: Mapping[str, Any]
    """How the job had been started."""

    def old(self, row: JobRow) -> Launch:
        return Launch.from_spec(row.name, {**row.spec, "launch": self.before})

    def has_begun(self, directory: JobDirectory) -> bool:
        """Whether the job has gone over to the new code, and has not been taken elsewhere."""
        identity = directory.load()
        return identity is not None and identity.timelines[-1].origin == self.savepoint


def note(directory: JobDirectory, upgrade: Upgrade) -> None:
    write_json(_path(directory), {"format": FORMAT_VERSION, **asdict(upgrade)})


def forget(directory: JobDirectory) -> None:
    _path(directory).unlink(missing_ok=True)


def interrupted(directory: JobDirectory, row: JobRow, app: Path) -> Upgrade | None:
    """The upgrade to this code that nobody has seen the end of, if the job's last start was
    part of it."""
    path = _path(directory)
    if not path.exists():
        return None
    stored = dict(read_json(path))
    if stored.pop("format", None) != FORMAT_VERSION:
        return None  # another version's; an upgrade that begins anew needs no note
    found = Upgrade(**stored)
    last_started = Launch.from_spec(row.name, row.spec).app
    return found if found.app == str(app) == str(last_started) else None


def _path(directory: JobDirectory) -> Path:
    return directory.path / _NOTE
