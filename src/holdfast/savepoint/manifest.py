"""What a savepoint says about itself. A directory without a manifest is not a savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.record import parse_time, time_text
from holdfast.errors import CorruptionError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file of a savepoint, by its path relative to it."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    id: str
    kind: Literal["native", "canonical"]
    """"native": the files of a Spark checkpoint, as Spark wrote them. "canonical": the state of
    process steps as plain columns; see `holdfast.savepoint.canonical`."""
    created: datetime
    epoch: int
    identity: JobIdentity
    """The job as it was: operators, parallelism, key groups, backend, timelines."""
    sources: Mapping[str, Any]
    """How far each source had been read."""
    watermark: datetime | None = None
    keys: Mapping[str, int] = field(default_factory=dict)
    """Live keys by step, where they were known."""
    label: str = ""
    parent: str | None = None
    """The savepoint that the job had been started from, if it was, or that was edited."""
    edits: tuple[str, ...] = ()
    """The SQL that made it of its parent, if somebody corrected it by hand."""
    holdfast: str = ""
    spark: str = ""
    files: tuple[SavedFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            **vars(self),
            "created": time_text(self.created),
            "watermark": time_text(self.watermark),
            "identity": self.identity.to_dict(),
            "sources": dict(self.sources),
            "keys": dict(self.keys),
            "edits": list(self.edits),
            "files": [vars(file) for file in self.files],
        }

    @classmethod
    def from_dict(cls, stored: Any, path: str) -> Self:
        """The inverse of `to_dict`; CorruptionError names the `path` it came from."""
        try:
            version = stored["format"]
            if version != FORMAT_VERSION:
                raise CorruptionError(
                    "SAVEPOINT_FORMAT_UNKNOWN",
                    f"{path} has format {version!r}; this version of holdfast reads "
                    f"{FORMAT_VERSION}.",
                    fix="use the holdfast version that took the savepoint, or a newer one.",
                    path=path,
                )
            fields = {name: value for name, value in stored.items() if name != "format"}
            fields["created"] = parse_time(fields["created"])
            fields["watermark"] = parse_time(fields["watermark"])
            fields["identity"] = JobIdentity.from_dict(fields["identity"])
            fields["edits"] = tuple(fields.get("edits", ()))
            fields["files"] = tuple(SavedFile(**file) for file in fields["files"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(
                "SAVEPOINT_MANIFEST_DAMAGED",
                f"{path} is not a manifest that holdfast wrote: {error}.",
                fix="restore the file from a backup, or use another savepoint.",
                path=path,
            ) from error
