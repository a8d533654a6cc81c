"""Where the server of this machine is: a file that only its owner can read."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from holdfast.errors import CorruptionError, HoldfastError, NotFoundError
from holdfast.storage.files import read_json, write_json
from holdfast.storage.processes import is_alive

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    url: str
    token: str
    """For commands of the same user; a new one at each start of the server."""
    pid: int
    process_started: int | None
    certificate: str = ""

    @staticmethod
    def file(home: Path) -> Path:
        return home / "server" / "server.json"

    def write(self, home: Path) -> None:
        """Nobody but its owner may read it at any moment: the folder is closed before."""
        file = self.file(home)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.parent.chmod(0o700)
        write_json(file, {"format": FORMAT, **asdict(self)})
        file.chmod(0o600)

    def remove(self, home: Path) -> None:
        """Not that of a server which has come after."""
        if self.find(home) == self:
            self.file(home).unlink(missing_ok=True)

    @classmethod
    def find(cls, home: Path) -> Self | None:
        """Of a server that lives; None if there is none, or the file is somebody else's."""
        file = cls.file(home)
        try:
            if file.stat().st_uid != os.getuid():
                return None
            stored = dict(read_json(file))
        except (OSError, NotFoundError, CorruptionError):
            return None
        if stored.pop("format", None) != FORMAT:
            return None
        found = cls(**stored)
        return found if is_alive(found.pid, found.process_started) else None

    @classmethod
    def require(cls, home: Path | None) -> Self:
        if home is None:
            from holdfast.settings import load_settings

            home = load_settings().values.home
        found = cls.find(home)
        if found is None:
            raise _none(home)
        return found


def _none(home: Path) -> HoldfastError:
    return NotFoundError(
        "SERVER_NOT_RUNNING",
        f"no server runs for {home}.",
        fix="`holdfast server` starts one; --home must be the same.",
    )
