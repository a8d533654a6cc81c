"""What can be done to an operation."""

from __future__ import annotations

from holdfast.client import models
from holdfast.server.ui.dialogs.sheet import Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.shell import tell


class _Cancel(Sheet):
    def __init__(self, here: Here, operation: models.Operation) -> None:
        title = f"Cancel {operation.kind} of {operation.job}"
        super().__init__(here, title, go="Cancel the operation", danger=True)
        self._operation = operation
        with self.body:
            text(
                "p",
                "Ends the process that carries it out. The job and its supervisor are left as "
                "they are, and the job can have another operation at once.",
            )

    async def act(self) -> None:
        ended = await self.here.ask(
            self.here.service.operations.cancel, self.here.actor, self._operation.id
        )
        tell(f"Operation {ended.id} is {ended.state.lower()}.", tone="warning")
        self.close()


async def cancel_operation(here: Here, operation: models.Operation) -> None:
    await _Cancel(here, operation).wait()
