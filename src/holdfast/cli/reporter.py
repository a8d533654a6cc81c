"""What `holdfast run` says while a job runs: lines for people, or JSON lines."""

from __future__ import annotations

from holdfast.checkpoint.record import EpochRecord, JobEvent, StartReport
from holdfast.cli.output import clean, count, print_json_line, seconds, size, write_line
from holdfast.control.states import RunState
from holdfast.errors import HoldfastError


class TextReporter:
    """One line per epoch."""

    def __init__(self) -> None:
        self._epochs = self._rows = 0

    def started(self, start: StartReport) -> None:
        write_line(f"job {start.job}: attempt {start.attempt}, {clean(_how_it_began(start))}")
        write_line(f"  guarantee   {start.guarantee}, end to end")
        for weak in start.weak_links:
            write_line(f"              {clean(weak)}")
        write_line(
            f"  state       {start.parallelism} partitions, {start.key_groups} key groups, "
            f"{start.backend} backend, epoch every {start.interval}"
        )
        for uid, source in start.sources.items():
            write_line(f"  source      {uid}: {clean(source)}")
        for uid, sink in start.sinks.items():
            write_line(f"  sink        {uid}: {clean(sink)}")
        write_line(f"  kept in     {clean(start.directory)}")
        for uid in start.never_forget:
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

    def happened(self, event: JobEvent) -> None:
        write_line(f"{event.kind}: {clean(event.text)}")

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        write_line(f"{state.value}: {count(self._epochs)} epochs, {count(self._rows)} rows")


def _how_it_began(start: StartReport) -> str:
    if start.origin:
        return f"started from {start.origin}"
    return "resumed from its last checkpoint" if start.resumed else "started without state"


class JsonReporter:
    """One JSON object per line."""

    def started(self, start: StartReport) -> None:
        print_json_line({"event": "started", **vars(start)})

    def epoch(self, record: EpochRecord) -> None:
        print_json_line({"event": "epoch", **record.to_dict()})

    def happened(self, event: JobEvent) -> None:
        fields = {"event": event.kind, "at": event.at, "text": event.text}
        print_json_line(fields | {"attempt": event.attempt, "data": dict(event.data)})

    def ended(self, state: RunState, error: HoldfastError | None) -> None:
        print_json_line({"event": "ended", "state": state.value})
