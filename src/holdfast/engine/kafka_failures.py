"""What Spark's Kafka connector says when records are gone while a query runs."""

from __future__ import annotations

import re

from holdfast.errors import DataError, HoldfastError

_LOST = re.compile(
    r"Some data may have been lost because they are not available in Kafka any more.*?"
    r"Reason: (?P<reason>.*?)(?: SQLSTATE|\n===|\nwith consumer group|\n\s+at |\nCaused|\Z)",
    re.DOTALL,
)
# A later connector names the condition, and has no "Reason:".
_NAMED = re.compile(r"\[?KAFKA_DATA_LOSS\.(?P<condition>\w+)\]?[^\n]*\n?(?P<reason>[^\n]*)")
_RANGE = re.compile(
    r"offset \[(?P<first>\d+), (?P<until>\d+)\) for topic(?: partition)? "
    r"(?P<topic>\S+?)(?:-| partition )(?P<partition>\d+)\b"
)


def kafka_failure(text: str) -> HoldfastError | None:
    found = _LOST.search(text) or _NAMED.search(text)
    if found is None:
        return None
    reason = " ".join(found["reason"].split()).rstrip(".")
    facts: dict[str, object] = {}
    place = _RANGE.search(reason)
    if place is not None:
        topic, partition = place["topic"], int(place["partition"])
        first, until = int(place["first"]), int(place["until"])
        reason = f"topic {topic}, partition {partition}, offsets {first} to {until - 1}"
        lost = {"topic": topic, "partition": partition, "first": first, "until": until}
        facts["lost"] = [lost]
    return DataError(
        "DATA_LOST",
        f"Kafka no longer has records that this job has not read: {reason}; the epoch was not "
        "committed.",
        fix='restore them, or go on without them: on_data_loss="continue" counts what is gone '
        "when the job starts.",
        **facts,
    )
