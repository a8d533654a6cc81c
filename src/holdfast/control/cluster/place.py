"""Where the local cluster keeps its files, and that nobody else can read them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.storage.files import remove_tree, storage_errors


@dataclass(frozen=True)
class ClusterPlace:
    """`<home>/cluster`."""

    directory: Path

    @classmethod
    def of(cls, home: Path) -> ClusterPlace:
        return cls(home / "cluster")

    @property
    def record(self) -> Path:
        """Who is there; exists while the cluster does."""
        return self.directory / "cluster.json"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def conf(self) -> Path:
        """Spark's configuration directory, with the secret; exists while the cluster does."""
        return self.directory / "conf"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def log(self, member: str) -> Path:
        return self.logs / f"{member}.log"

    def work(self, member: str) -> Path:
        """What Spark keeps per executor: its output, above all."""
        return self.directory / "work" / member

    def scratch(self, member: str) -> Path:
        """Shuffle files and the RocksDB instances of executors."""
        return self.directory / "scratch" / member

    def make(self) -> None:
        """Make the directory, for this user alone: it holds a secret and users' data."""
        with storage_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)

    def clear(self) -> None:
        """Remove what an earlier cluster left, its logs included."""
        for path in (self.directory / "work", self.logs):
            remove_tree(path)
        self.clear_running()

    def clear_running(self) -> None:
        """Remove what is of no use without the processes, the secret first."""
        for path in (self.conf, self.directory / "scratch", self.record):
            remove_tree(path)


def write_private(path: Path, text: str) -> None:
    """A new file that only this user can read, from its first byte on."""
    with storage_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
