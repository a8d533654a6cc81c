"""Runs pipelines on Kafka as jobs, in the tests' own JVM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import holdfast as hf
from holdfast.config import RuntimeConfig
from spark.processes import RunningTotal
from spark.workplace import Workplace

SCHEMA = "user string, diff bigint"


@dataclass(frozen=True)
class Workshop(Workplace):
    jars: str = ""

    def runtime(self, heap_limit: str = "64 MiB") -> RuntimeConfig:
        return replace(super().runtime(heap_limit), kafka_jars=self.jars)

    def copy(
        self, source: hf.sources.Source, sink: hf.sinks.Sink, name: str = "job", **options: Any
    ) -> None:
        """From a source straight to a sink: no Python worker, so the test is quick."""
        self.run(Copy(source, sink), name, **options)


@dataclass
class Copy:
    source: hf.sources.Source
    sink: hf.sinks.Sink

    def __call__(self, flow: hf.Flow) -> None:
        flow.sink("out", flow.source("in", self.source), self.sink)


@dataclass
class Totals:
    """Running totals per user."""

    source: hf.sources.Source
    sink: hf.sinks.Sink

    def __call__(self, flow: hf.Flow) -> None:
        keyed = flow.key_by(flow.source("edits", self.source), "user")
        flow.sink("out", keyed.process("totals", RunningTotal()), self.sink)
