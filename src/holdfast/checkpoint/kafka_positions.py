"""Positions in Kafka: how far behind, and what is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import DataError

Position = Mapping[str, Mapping[str, int]]
"""By topic and partition, as Spark writes it: the offset of the next record to read."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Records of a partition that were not read and cannot be read any more."""

    topic: str
    partition: int
    first: int
    until: int | None
    """One past the last; None: nobody knows, the partition has started again or is gone."""
    reason: str

    @property
    def records(self) -> int:
        return 0 if self.until is None else self.until - self.first

    @property
    def sentence(self) -> str:
        gone = (
            f"from {self.first} on"
            if self.until is None
            else f"{self.first} to {self.until - 1}"
        )
        return f"topic {self.topic}, partition {self.partition}, offsets {gone}: {self.reason}"


def is_position(offset: Any) -> bool:
    """Whether a source's position is one in Kafka."""
    return (
        isinstance(offset, Mapping)
        and bool(offset)
        and all(
            isinstance(found, Mapping) and all(isinstance(at, int) for at in found.values())
            for found in offset.values()
        )
    )


def lag_of(position: Any, latest: Any) -> dict[str, dict[str, int]] | None:
    """Records that each partition has and the job has not read; None if nobody knows."""
    if not is_position(position) or not is_position(latest):
        return None
    return {
        topic: {
            partition: max(0, end - position.get(topic, {}).get(partition, end))
            for partition, end in found.items()
        }
        for topic, found in latest.items()
    }


def total(lag: Mapping[str, Mapping[str, int]]) -> int:
    return sum(sum(found.values()) for found in lag.values())


def lost_records(
    position: Position,
    earliest: Mapping[str, Mapping[int, int]],
    latest: Mapping[str, Mapping[int, int]],
) -> Iterator[Lost]:
    """What a job that stands at `position` can no longer read."""
    for topic, found in position.items():
        for name, at in found.items():
            partition = int(name)
            first = earliest.get(topic, {}).get(partition)
            end = latest.get(topic, {}).get(partition)
            if first is None or end is None:
                yield Lost(
                    topic=topic,
                    partition=partition,
                    first=at,
                    until=None,
                    reason="the partition is not there any more",
                )
            elif at > end:
                yield Lost(
                    topic=topic,
                    partition=partition,
                    first=at,
                    until=None,
                    reason=f"the partition ends at {end}; the topic was made anew",
                )
            elif at < first:
                yield Lost(
                    topic=topic,
                    partition=partition,
                    first=at,
                    until=first,
                    reason="they were deleted before they were read",
                )


def data_lost(uid: str, lost: list[Lost]) -> DataError:
    lines = "".join(f"\n  - {each.sentence}" for each in lost)
    return DataError(
        "DATA_LOST",
        f"source {uid!r}: Kafka no longer has records that this job has not read:{lines}",
        fix='restore them, or go on without them: on_data_loss="continue" counts what is gone. '
        "If the topic was made anew, keep the state and choose where to read it from: "
        f"Kafka(start=…) and `holdfast run APP.py --from checkpoint:N --reset-source {uid}`. "
        "A longer retention of the topic, or a job that is down for less time, avoids losses.",
        source=uid,
        lost=[vars(each) for each in lost],
    )
