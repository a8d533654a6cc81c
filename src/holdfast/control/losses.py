"""How long a job took to get over the loss of executors: what the history says about it."""

from __future__ import annotations

from datetime import datetime

from holdfast.checkpoint.record import EpochRecord, EpochStatus, JobEvent


class Losses:
    """Of one attempt. A loss is over when an epoch is committed that saw it."""

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._executors: list[str] = []

    def happened(self, event: JobEvent) -> None:
        # An executor that was doing nothing holds nothing up.
        if event.kind == "executor_lost" and event.data.get("tasks"):
            self._since = self._since or event.at
            self._executors.append(str(event.data["executor"]))

    def over(self, record: EpochRecord) -> JobEvent | None:
        """What there is to tell once, when this epoch has come."""
        ended = record.ended
        if self._since is None or ended is None or record.status is not EpochStatus.COMMITTED:
            return None
        if ended < self._since:
            return None  # its record was on the way when the executor was lost
        lost, seconds = tuple(self._executors), (ended - self._since).total_seconds()
        self._since, self._executors = None, []
        who = f"executor {lost[0]}" if len(lost) == 1 else f"executors {', '.join(lost)}"
        return JobEvent(
            at=ended,
            kind="loss_overcome",
            text=f"epoch {record.epoch} is committed, {seconds:.1f} s after the loss of {who}.",
            data={"epoch": record.epoch, "executors": list(lost), "seconds": round(seconds, 1)},
            attempt=record.attempt,
        )
