"""The part of a canonical savepoint that holds the state of process steps.

    state/<uid>/*.parquet    a row per key: key columns, then the variables of the step
    broadcast/<uid>.arrow    its broadcast state, an Arrow stream with one row
    native/<uid>/*.parquet   what Spark's own operators hold, to be read by people

Names that begin or end with a `!` part hold times: `!event` and `!processing` the pending
timers of a key, `total!expiry` when the value of `total` expires, in microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.state.canonical import StoredStep
from holdfast.state.schema import columns_ddl
from holdfast.storage.files import list_names, make_directory, storage_errors, write_atomic


@dataclass(frozen=True)
class CanonicalState:
    path: Path

    def rows(self, uid: str) -> Path:
        return self.path / "state" / uid

    def native(self, uid: str) -> Path:
        return self.path / "native" / uid

    def files(self) -> list[Path]:
        """All that it is made of."""
        folders = [self.path / name for name in ("state", "broadcast", "native")]
        return [file for folder in folders for file in folder.rglob("*") if file.is_file()]

    def key_counts(self) -> dict[str, int]:
        """How many keys each process step has."""
        import pyarrow.parquet as pq

        return {
            uid: sum(
                pq.read_metadata(file).num_rows for file in self.rows(uid).glob("*.parquet")
            )
            for uid in list_names(self.path / "state")
        }

    def ddl(self, step: StoredStep) -> str:
        return columns_ddl(step.schema)

    def broadcast(self, uid: str) -> bytes | None:
        file = self._broadcast(uid)
        with storage_errors(file):
            return file.read_bytes() if file.exists() else None

    def save_broadcast(self, uid: str, state: bytes) -> None:
        make_directory(self._broadcast(uid).parent)
        write_atomic(self._broadcast(uid), state)

    def _broadcast(self, uid: str) -> Path:
        return self.path / "broadcast" / f"{uid}.arrow"
