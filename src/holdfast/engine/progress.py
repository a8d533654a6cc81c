"""Spark's progress reports to epoch records, without holding up the query."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast.checkpoint.kafka_positions import is_position, lag_of, total
from holdfast.checkpoint.record import EpochRecord, EpochStatus, StateSize
from holdfast.engine.epochs import EpochOutcome
from holdfast.engine.frames import CLOCK_MARK
from holdfast.engine.idle import IdleNotes
from holdfast.engine.record_reasons import SKIPPED_PREFIX

logger = logging.getLogger(__name__)

# Spark's names of phases, in the order in which they happen.
_PHASES = {
    "latestOffset": "offsets",
    "getBatch": "offsets",
    "walCommit": "wal",
    "queryPlanning": "plan",
    "addBatch": "execute",
    "commitOffsets": "commit",
}


class ProgressListener(StreamingQueryListener):
    """Turns every finished micro-batch into an :class:`EpochRecord`."""

    def __init__(
        self,
        *,
        attempt: int,
        checkpoint: Path,
        incremental: bool,
        sources: tuple[str, ...],
        natives: tuple[str, ...],
        positions: Mapping[str, int],
        outcome_of: Callable[[int], EpochOutcome | None],
        idle: IdleNotes,
        on_entries: Callable[[int, Mapping[str, int]], None],
        on_epoch: Callable[[EpochRecord], None],
    ) -> None:
        self._attempt, self._checkpoint, self._incremental = attempt, checkpoint, incremental
        self._sources, self._natives, self._positions = sources, natives, positions
        self._idle, self._on_entries = idle, on_entries
        self._outcome_of, self._on_epoch = outcome_of, on_epoch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to note: an attempt is registered before its query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            progress = json.loads(event.progress.json)
            outcome = self._outcome_of(progress["batchId"])
            if outcome is not None:  # a report without a batch: the query is idle
                self._on_entries(progress["batchId"], entries(progress, self._positions))
                self._on_epoch(self._record(progress, outcome))
        except Exception:
            # A listener that raises is detached by Spark; losing one record is better.
            logger.exception("epoch record lost")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """An idle query has no epochs."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The driver itself waits for the end."""

    def _record(self, progress: Mapping[str, Any], outcome: EpochOutcome) -> EpochRecord:
        durations = progress.get("durationMs", {})
        phases: dict[str, float] = {}
        for spark_name, name in _PHASES.items():
            phases[name] = phases.get(name, 0.0) + durations.get(spark_name, 0) / 1000
        started = parse_time(progress["timestamp"])
        took = durations.get("triggerExecution", sum(durations.values()))
        epoch = progress["batchId"]
        sources = [
            (uid, source)
            for uid, source in zip(self._sources, progress.get("sources", []), strict=False)
            if not uid.endswith(CLOCK_MARK)
        ]
        ended = started + timedelta(milliseconds=took)
        rows = {uid: source.get("numInputRows", 0) for uid, source in sources}
        self._idle.follow(progress, rows, started, ended)
        return EpochRecord(
            epoch=epoch,
            attempt=self._attempt,
            status=EpochStatus.COMMITTED,
            started=started,
            ended=ended,
            phases={
                **phases,
                "sinks": round(outcome.sink_seconds, 3),
                "workers": round(outcome.worker_seconds, 3),
                "load": round(outcome.load_seconds + _loading(progress), 3),
            },
            # Spark's own total has the ticks of our clock in it.
            input_rows=sum(rows.values()),
            waited_for={uid: not idle for uid, idle in self._idle.sources.items()},
            skipped_rows=_skipped(progress),
            output_rows=sum(sink.rows for sink in outcome.sinks.values()),
            bytes_written=sum(sink.bytes for sink in outcome.sinks.values()),
            checkpoint_bytes=state_bytes_written(self._checkpoint, epoch),
            checkpoint_kind="incremental" if self._incremental else "full",
            state={**outcome.state, **native_state(progress, self._natives)},
            sinks=outcome.sinks,
            watermark=_watermark(progress),
            late={**outcome.late, **native_late(progress, self._natives)},
            offsets={uid: source.get("endOffset") for uid, source in sources},
            latest={
                uid: source["latestOffset"] for uid, source in sources if _tells_its_end(source)
            },
            lag={
                uid: total(lag)
                for uid, source in sources
                if (lag := lag_of(source.get("endOffset"), source.get("latestOffset")))
                is not None
            },
        )


def entries(progress: Mapping[str, Any], positions: Mapping[str, int]) -> dict[str, int]:
    """How many entries each step has in its stores, which Spark reports by place."""
    operators = progress.get("stateOperators", [])
    return {
        uid: operators[at]["numRowsTotal"]
        for uid, at in positions.items()
        if at < len(operators)
    }


def _tells_its_end(source: Mapping[str, Any]) -> bool:
    """Whether a source tells where it ends, and in partitions."""
    return is_position(source.get("latestOffset"))


def native_state(progress: Mapping[str, Any], natives: tuple[str, ...]) -> dict[str, StateSize]:
    """Rows and memory of Spark's own operators. Process steps count their keys themselves."""
    return {
        uid: StateSize(rows=operator["numRowsTotal"], bytes=operator["memoryUsedBytes"])
        for uid, operator in _native_operators(progress, natives)
    }


def native_late(progress: Mapping[str, Any], natives: tuple[str, ...]) -> dict[str, int]:
    """Late records that Spark's own operators dropped: all that it tells about them."""
    dropped = {
        uid: operator.get("numRowsDroppedByWatermark", 0)
        for uid, operator in _native_operators(progress, natives)
    }
    return {uid: count for uid, count in dropped.items() if count}


def _native_operators(
    progress: Mapping[str, Any], natives: tuple[str, ...]
) -> list[tuple[str, Mapping[str, Any]]]:
    operators = [
        operator
        for operator in progress.get("stateOperators", [])
        if not operator["operatorName"].startswith("transformWithState")
    ]
    return list(zip(natives, operators, strict=False))


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _skipped(progress: Mapping[str, Any]) -> int:
    """Bad records that sources with ``on_bad_record="skip"`` left out."""
    metrics = progress.get("observedMetrics", {})
    return sum(
        found["bad"] for name, found in metrics.items() if name.startswith(SKIPPED_PREFIX)
    )


def _loading(progress: Mapping[str, Any]) -> float:
    """Seconds in which state stores were opened, all of them together."""
    metrics = (operator["customMetrics"] for operator in progress.get("stateOperators", []))
    milliseconds: int = sum(each.get("rocksdbLoadLatencyMs", 0) for each in metrics)
    return milliseconds / 1000


def _watermark(progress: Mapping[str, Any]) -> datetime | None:
    text = progress.get("eventTime", {}).get("watermark")
    reached = parse_time(text) if text else None
    # Spark says 1970 before there is a watermark.
    return reached if reached and reached.timestamp() > 0 else None


def state_bytes_written(checkpoint: Path, epoch: int) -> int:
    """Bytes of state that an epoch added: batch N writes state version N + 1."""
    total = 0
    prefix = f"{epoch + 1}_"
    for operator in _directories(checkpoint / "state"):
        for partition in _directories(operator):
            if not partition.name.isdigit():
                continue
            for path in partition.glob(f"{prefix}*"):
                if path.suffix in (".changelog", ".zip"):
                    total += path.stat().st_size
    return total


def _directories(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []
