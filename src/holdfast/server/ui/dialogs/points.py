"""What can be done to one savepoint."""

from __future__ import annotations

from holdfast.client import models
from holdfast.server.ui.dialogs.sheet import Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.shell import tell


class _Verify(Sheet):
    def __init__(self, here: Here, savepoint: str) -> None:
        super().__init__(here, f"Verify {savepoint}", go="Verify")
        self._savepoint = savepoint
        with self.body:
            text("p", "Compares every file with its checksum, and the keys with their count.")

    async def act(self) -> models.Operation:
        verify = self.here.service.savepoints.verify
        return await self.here.ask(verify, self.here.actor, self._savepoint)


class _Export(Sheet):
    def __init__(self, here: Here, savepoint: str) -> None:
        super().__init__(here, f"Export {savepoint}", go="Export")
        self._savepoint = savepoint
        with self.body:
            text("p", "Makes a canonical savepoint of the same state: plain Parquet columns.")

    async def act(self) -> models.Operation:
        export = self.here.service.savepoints.export
        return await self.here.ask(export, self.here.actor, self._savepoint)


class _Delete(Sheet):
    def __init__(self, here: Here, savepoint: models.SavepointDetails) -> None:
        super().__init__(here, f"Delete {savepoint.id}", go="Delete", danger=True)
        self._savepoint = savepoint.id
        with self.body:
            text(
                "p",
                f"Epoch {savepoint.epoch:,} of {savepoint.job} with {savepoint.keys:,} keys in "
                f"{savepoint.files:,} files. They are gone for good.",
            )
            if savepoint.used_by:
                started = ", ".join(savepoint.used_by)
                text("p", f"Started from it: {started}. They go on without it.")

    async def act(self) -> None:
        delete = self.here.service.savepoints.delete
        await self.here.ask(delete, self.here.actor, self._savepoint)
        tell(f"Savepoint {self._savepoint} was deleted.")
        self.close()


async def verify_savepoint(here: Here, savepoint: str) -> None:
    await _Verify(here, savepoint).wait()


async def export_savepoint(here: Here, savepoint: str) -> None:
    await _Export(here, savepoint).wait()


async def delete_savepoint(here: Here, savepoint: str) -> None:
    details = await here.ask(here.service.savepoints.get, savepoint)
    await _Delete(here, details).wait()
