"""Before a query on Kafka starts: are the brokers there, the topics, and the records?

Spark would find out too, minutes later and in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint.kafka_positions import Lost, data_lost, is_position, lost_records
from holdfast.checkpoint.record import JobEvent
from holdfast.checkpoint.spark_files import read_start, spark_source_name
from holdfast.sources import Kafka
from holdfast.sources.base import Source
from holdfast.storage.kafka import KafkaAdmin


def check_kafka(
    sources: Mapping[str, Source],
    *,
    checkpoint: Path,
    last: int | None,
    reported: tuple[str, ...],
    named: bool,
    on_event: Callable[[JobEvent], None],
) -> None:
    """Refuses what cannot be read. `last` is the committed epoch that the job goes on from.

    Spark writes positions by name, or in the order of `reported`.
    """
    if not any(isinstance(source, Kafka) for source in sources.values()):
        return
    positions = _positions(checkpoint, last, reported, named=named)
    for uid, source in sources.items():
        if isinstance(source, Kafka):
            _check(uid, source, positions.get(uid), on_event)


def _positions(
    checkpoint: Path, last: int | None, reported: tuple[str, ...], *, named: bool
) -> dict[str, Any]:
    if last is None:
        return {}
    found = read_start(checkpoint, last).sources
    if named:
        offsets = {each.name: each.offset for each in found}
        return {uid: offsets.get(spark_source_name(uid)) for uid in reported}
    return {uid: each.offset for uid, each in zip(reported, found, strict=False)}


def _check(
    uid: str, source: Kafka, position: Any, on_event: Callable[[JobEvent], None]
) -> None:
    admin = KafkaAdmin(source.access)
    partitions = admin.selected(source.topic_names, source.pattern)
    if not is_position(position):
        return
    lost = list(lost_records(position, admin.earliest(partitions), admin.latest(partitions)))
    if not lost:
        return
    if source.on_data_loss == "fail":
        raise data_lost(uid, lost)
    on_event(loss_event(uid, lost))


def loss_event(uid: str, lost: list[Lost]) -> JobEvent:
    records = sum(each.records for each in lost)
    return JobEvent(
        at=datetime.now(UTC),
        kind="data_lost",
        text=f"source {uid!r} has lost {records} records: "
        + "; ".join(each.sentence for each in lost),
        data={"source": uid, "records": records, "lost": [vars(each) for each in lost]},
    )
