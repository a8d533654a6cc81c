"""What can be done to the cluster."""

from __future__ import annotations

from holdfast.server.ui.dialogs.sheet import Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.shell import tell


class _Kill(Sheet):
    def __init__(self, here: Here, worker: str) -> None:
        super().__init__(here, f"Kill {worker}", go=f"Kill {worker}", danger=True)
        self._worker = worker
        with self.body:
            text(
                "p",
                "Ends the worker and its executors by SIGKILL. Jobs that run there lose their "
                "tasks, and run them again elsewhere, or wait until there is room.",
            )

    async def act(self) -> None:
        killed = await self.here.ask(
            self.here.service.cluster.kill, self.here.actor, self._worker
        )
        tell(f"{killed.worker} was killed: {len(killed.pids)} processes.", tone="warning")
        self.close()


async def kill_worker(here: Here, worker: str) -> None:
    await _Kill(here, worker).wait()
