"""What `holdfast run` says while a job runs: lines for people, or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.checkpoint.record import EpochRecord
from holdfast.cli.output import clean, count, print_json_line, seconds, size, write_line
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError
from holdfast.job.job import Job


class TextReporter:
    """One line per epoch."""

    def __init__(self) -> None:
        self._epochs = self._rows = 0

    def started(self, job: Job, attempt: int, info: Any, directory: Path) -> None:
        how = "resumed from its last checkpoint" if info.resumed else "started without state"
        write_line(f"job {job.name}: attempt {attempt}, {how}")
        write_line(f"  guarantee   {info.guarantee.level}, end to end")
        for weak in info.guarantee.weak_links:
            write_line(f"              {clean(weak)}")
        identity = info.identity
        write_line(
            f"  state       {identity.parallelism} partitions, {identity.key_groups} key "
            f"groups, {job.checkpoint.backend} backend, epoch every {job.checkpoint.interval}"
        )
        for uid, source in info.graph.sources.items():
            write_line(f"  source      {uid}: {clean(source.describe())}")
        for uid, sink in info.graph.sinks.items():
            write_line(f"  sink        {uid}: {clean(sink.describe())}, {sink.delivery}")
        write_line(f"  kept in     {clean(str(directory))}")
        for uid, step in info.graph.steps.items():
            if not step.forgets:
                write_line(f"  note        {uid} keeps every key that it has ever seen: no TTL")

    def epoch(self, record: EpochRecord) -> None:
        self._epochs += 1
        self._rows += record.input_rows
        skipped = f", skipped {count(record.skipped_rows)}" if record.skipped_rows else ""
        late = f", late {count(record.late_rows)}" if record.late_rows else ""
        write_line(
            f"epoch {record.epoch:>5}  {seconds(record.seconds):>8}  "
            f"in {count(record.input_rows):>9}  out {count(record.output_rows):>9}  "
            f"state {count(record.state_rows)} keys, {size(record.state_bytes)}{skipped}{late}"
        )

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        write_line(f"{state.value}: {count(self._epochs)} epochs, {count(self._rows)} rows")


class JsonReporter:
    """One JSON object per line."""

    def started(self, job: Job, attempt: int, info: Any, directory: Path) -> None:
        print_json_line(
            {
                "event": "started",
                "job": job.name,
                "attempt": attempt,
                "resumed": info.resumed,
                "guarantee": info.guarantee.level,
                "directory": directory,
                "timings": info.timings,
            }
        )

    def epoch(self, record: EpochRecord) -> None:
        print_json_line({"event": "epoch", **record.to_dict()})

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        print_json_line({"event": "ended", "state": state.value})
