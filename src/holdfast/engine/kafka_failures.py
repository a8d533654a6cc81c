"""What Spark's Kafka connector says when records are gone, or a key cannot be read."""

from __future__ import annotations

import re

from holdfast.errors import DataError, HoldfastError, SettingsError

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


_KEY_UNREADABLE = "PBES2 SecretKeyFactory not available"


def kafka_failure(text: str) -> HoldfastError | None:
    if _KEY_UNREADABLE in text:
        return SettingsError(
            "KAFKA_KEY_UNREADABLE",
            "this Java cannot decrypt the key in the security of a Kafka source or sink: it is "
            "encrypted by PBES2, which is OpenSSL's default and which Java reads from 19 on.",
            fix="use a newer Java, or encrypt the key anew: openssl pkcs8 -topk8 -v1 "
            "PBE-SHA1-3DES -in KEY -out NEW.",
        )
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
