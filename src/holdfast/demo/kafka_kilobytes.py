"""The second version of the job of `holdfast demo --kafka`, on three partitions."""

from __future__ import annotations

import holdfast as hf
from holdfast.demo.kafka_job import pipeline_with
from holdfast.demo.kilobytes import KilobyteBalance

job = hf.Job(
    "wiki-demo",
    checkpoint=hf.CheckpointConfig(interval="1 s"),
    restart=hf.FixedDelay(attempts=3, delay="1 s"),
    parallelism=3,
)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    pipeline_with(flow, KilobyteBalance())
