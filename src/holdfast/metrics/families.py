"""Every metric that holdfast has: name, kind, labels, and what it means.

The documentation lists the same; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

_UNITS = ("seconds", "bytes")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One metric; `name` is without the `_total` of a counter and the `_info` of an info."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    labels: tuple[str, ...]
    help: str

    @property
    def sample_name(self) -> str:
        return self.name + {"counter": "_total", "gauge": "", "info": "_info"}[self.kind]

    def empty(self) -> Any:
        if self.kind == "info":
            return InfoMetricFamily(self.name, self.help)
        unit = next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")
        made = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return made(self.name, self.help, labels=self.labels, unit=unit)


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family(name=name, kind="counter", labels=("job", *labels), help=help_text)


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family(name=name, kind="gauge", labels=("job", *labels), help=help_text)


FAMILIES = (
    Family(
        name="holdfast_build",
        kind="info",
        labels=("version", "python"),
        help="The holdfast that answers.",
    ),
    _gauge("holdfast_job_state", "1 for the state that the job is in, else 0.", "state"),
    _counter("holdfast_job_attempts", "Attempts to run the job."),
    _counter(
        "holdfast_job_restarts",
        "Failed attempts that another one followed, by the class of the failure.",
        "reason",
    ),
    _gauge("holdfast_job_start_timestamp_seconds", "When the last attempt started."),
    _counter("holdfast_job_events", "Events in the history of the job.", "kind"),
    _counter("holdfast_checkpoints_completed", "Committed epochs."),
    _counter("holdfast_checkpoints_failed", "Epochs that were cut short and run again."),
    _gauge("holdfast_checkpoint_interval_seconds", "The declared interval."),
    _gauge("holdfast_checkpoint_duration_seconds", "Of the last committed epoch.", "phase"),
    _gauge("holdfast_epoch_duration_seconds", "Wall time of the last committed epoch."),
    _gauge(
        "holdfast_checkpoint_last_completed_timestamp_seconds",
        "When the last committed epoch ended.",
    ),
    _gauge("holdfast_checkpoint_last_id", "Number of the last committed epoch."),
    _gauge("holdfast_checkpoint_size_bytes", "State that the last committed epoch wrote."),
    _counter("holdfast_source_records", "Records read by committed epochs."),
    _gauge(
        "holdfast_source_lag_records",
        "Records that a source has and the job has not read; where it is known.",
        "source",
    ),
    _gauge(
        "holdfast_source_waiting_files",
        "Files that a source has and the job has not read.",
        "source",
    ),
    _gauge(
        "holdfast_source_lag_seconds",
        "How long the oldest of them has been waiting.",
        "source",
    ),
    _counter("holdfast_sink_records", "Rows written by committed epochs.", "sink"),
    _counter("holdfast_late_records", "Records that the watermark had passed.", "operator"),
    _counter("holdfast_skipped_records", "Records that did not parse and were left out."),
    _gauge("holdfast_state_rows", "Live keys after the last committed epoch.", "operator"),
    _gauge("holdfast_state_bytes", "State stored after the last committed epoch.", "operator"),
    _gauge("holdfast_watermark_timestamp_seconds", "Where the watermark stands."),
    _gauge(
        "holdfast_supervisor_heartbeat_age_seconds",
        "Time since the supervisor of the job last renewed its lease.",
    ),
    _gauge(
        "holdfast_lease_epoch",
        "The fence of the job: grows with every owner of its lease, and every attempt.",
    ),
)


@dataclass
class Sheet:
    """The families of one scrape while they are filled."""

    _families: dict[str, Any] = field(
        default_factory=lambda: {family.sample_name: family.empty() for family in FAMILIES}
    )

    def set(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample, by its full name; what is not known is left out."""
        if value is not None:
            self._families[name].add_metric(labels, value)

    def info(self, name: str, labels: dict[str, str]) -> None:
        self._families[name].add_metric((), labels)

    def families(self) -> Iterable[Metric]:
        return list(self._families.values())
