"""The second version of the demo's job: balances in kilobytes as well, on three partitions.

Its state is that of the first version, because the name of the job, the uids and the state
variables are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import holdfast as hf
from holdfast.demo.job import RunningBalance, pipeline_with


class KilobyteBalance(RunningBalance):
    """What the first version says, and the balance in kilobytes."""

    output = f"{RunningBalance.output}, kilobytes double"

    def process(self, edit: Any, ctx: hf.Context) -> Iterator[tuple[Any, ...]]:
        for row in super().process(edit, ctx):
            yield *row, row[-1] / 1000


job = hf.Job(
    "wiki-demo",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.FixedDelay(attempts=3, delay="1 s"),
    parallelism=3,
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    pipeline_with(flow, KilobyteBalance())
