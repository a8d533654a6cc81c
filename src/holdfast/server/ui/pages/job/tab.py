"""What every tab of a job is."""

from __future__ import annotations

from holdfast.server.ui.here import Here


class Tab:
    """Is built once, when it is first looked at, and read anew while it is looked at."""

    def __init__(self, here: Here, job: str) -> None:
        self.here, self.job = here, job

    async def build(self) -> None:
        """Make it, with what is there now."""
        raise NotImplementedError

    async def read(self) -> None:
        """Show what is different."""
