"""A job that fails at once, again and again; WIKIPEDIA_RESTART names its restart strategy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from common import edits_by_user

import holdfast as hf

STRATEGIES = {
    "none": hf.NoRestart(),
    "fixed_delay": hf.FixedDelay(attempts=1, delay="1 s"),
    "failure_rate": hf.FailureRate(max_failures=1, per="5 min", delay="1 s"),
    "exponential_delay": hf.ExponentialDelay(initial="1 s"),
}
CHOSEN = os.environ.get("WIKIPEDIA_RESTART", "fixed_delay")


class AskAService(hf.KeyedProcess):
    """What it asks is never there."""

    output = "user string"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        raise ConnectionError("the service is down")
        yield


job = hf.Job(f"restart-{CHOSEN.replace('_', '-')}", restart=STRATEGIES[CHOSEN])


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    flow.sink("out", edits_by_user(flow).process("ask", AskAService()), hf.sinks.Discard())
