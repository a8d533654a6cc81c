"""`broker.json`: which process the local broker is, and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from holdfast.checkpoint.record import parse_time, time_text
from holdfast.control.cluster.processes import Process, is_alive
from holdfast.control.kafka.plan import LOOPBACK
from holdfast.errors import CorruptionError, NotFoundError
from holdfast.storage.files import read_json, write_json

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class BrokerRecord:
    """The broker that was started last and not ended; its process may be gone."""

    process: Process | None
    port: int
    directory: Path
    temporary: bool
    """Whether the directory goes when the broker is ended on purpose."""
    since: datetime

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process is not None and is_alive(self.process)


def save_record(path: Path, record: BrokerRecord) -> None:
    fields = asdict(record) | {
        "format": FORMAT,
        "address": record.address,
        "directory": str(record.directory),
        "since": time_text(record.since),
    }
    write_json(path, fields)


def load_record(path: Path) -> BrokerRecord | None:
    try:
        fields = read_json(path)
    except NotFoundError:
        return None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CorruptionError(
            "BROKER_FILE_UNREADABLE",
            f"{path} is not a broker file of format {FORMAT}.",
            fix="use the holdfast that wrote it; or end its process by hand and remove the "
            "file.",
            path=str(path),
        )
    since = parse_time(fields["since"])
    assert since is not None
    return BrokerRecord(
        process=Process(**fields["process"]) if fields["process"] else None,
        port=fields["port"],
        directory=Path(fields["directory"]),
        temporary=fields["temporary"],
        since=since,
    )
