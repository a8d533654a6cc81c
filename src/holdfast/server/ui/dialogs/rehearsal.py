"""A fork and the job that it came from: compared, and promoted by its plan."""

from __future__ import annotations

from holdfast.client import models, requests
from holdfast.errors import UsageError
from holdfast.server.ui.comparison import Comparison
from holdfast.server.ui.dialogs.sheet import PlanSheet, Sheet
from holdfast.server.ui.here import Here
from holdfast.server.ui.html import text
from holdfast.server.ui.widgets import Field, Option


class _Compare(Sheet):
    shows_result = False

    def __init__(self, here: Here, fork: str, parent: str) -> None:
        super().__init__(here, f"Compare {fork} with {parent}", go="Compare")
        self._fork, self._parent = fork, parent
        with self.body:
            text(
                "p",
                f"Compares what {parent} and its fork {fork} have written to files since the "
                "fork, row by row. Both go on meanwhile; only committed epochs count.",
            )
        with self.outcome:
            self._comparison = Comparison()

    async def act(self) -> models.Operation:
        return await self.here.ask(
            self.here.service.operations.ask,
            self.here.actor,
            self._parent,
            requests.CompareRequest(other=self._fork),
            key=self.key,
        )

    def done(self, operation: models.Operation) -> None:
        self._comparison.show(operation.result)


class _Promote(PlanSheet):
    def __init__(self, here: Here, fork: str, parent: str) -> None:
        super().__init__(here, f"Promote {fork}", fork, go="Promote")
        with self.fields:
            text(
                "p",
                f"Both end. {parent} goes on with the code, the state and the output of "
                f"{fork}; {fork} is finished.",
                "muted",
            )
            self._sink = Field(
                f"What {parent} has written since the fork",
                "rewind",
                kind="radio",
                options=sinks_of(parent),
                change=self.changed,
            )

    def request(self) -> requests.PromoteRequest:
        return requests.PromoteRequest.model_validate({"sink": str(self._sink.value)})


def sinks_of(parent: str) -> tuple[Option, ...]:
    return (
        Option("rewind", "Rewind", "File sinks drop it; the output of the fork takes over."),
        Option("keep", "Keep", "It stays, and the output of the fork comes on top of it."),
        Option(
            "new", "New", f"{parent} goes on in new directories; its old output stays there."
        ),
    )


async def compare(here: Here, fork: str) -> None:
    await _Compare(here, fork, await _parent(here, fork)).wait()


async def promote(here: Here, fork: str) -> None:
    await _Promote(here, fork, await _parent(here, fork)).wait()


async def _parent(here: Here, fork: str) -> str:
    details = await here.ask(here.service.jobs.get, fork)
    if details.forked_from is None:
        raise UsageError(
            "NOT_A_FORK",
            f"job {fork!r} is not a fork of another one.",
            fix="fork a job first: the button is on its page.",
        )
    return details.forked_from
