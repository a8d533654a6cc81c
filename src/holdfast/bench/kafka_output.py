"""What a program has written into its topic, compared with what it should hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.storage.kafka_topic import TopicRecord

OUTPUT = "output"
WARM_UP_SHARE = 0.2


class Truth:
    """The last total of each user, and how many edits there are."""

    def __init__(self, totals: Mapping[str, int], edits: int) -> None:
        self.totals, self.edits = totals, edits


def read_truth(file: Path) -> Truth:
    table = pq.read_table(file)
    users, totals, edits = (table.column(name).to_pylist() for name in table.column_names)
    return Truth(dict(zip(users, totals, strict=True)), sum(edits))


def figures(
    records: Iterable[TopicRecord],
    truth: Truth,
    warm_up: float = WARM_UP_SHARE,
    killed_at: float | None = None,
) -> dict[str, Any]:
    """The rate is that at which edits were worked off after a share of the output, `warm_up`,
    was in the topic, by the broker's own clock. `surplus` are rows beyond one per edit."""
    last: dict[str, int] = {}
    times: list[float] = []
    for record in records:
        row = json.loads(record.value or b"{}")
        if row.get("diff") == -1:
            continue  # Pathway takes the old total back before it writes the new one
        times.append(record.timestamp / 1000)
        last[row["user"]] = row["total"]
    times.sort()
    rows = len(times)
    begin = times[int(rows * warm_up)] if rows else 0.0
    seconds = times[-1] - begin if rows else 0.0
    after = [] if killed_at is None else [time for time in times if time > killed_at]
    return {
        "rows": rows,
        "surplus": rows - truth.edits,
        "exact": last == truth.totals,
        "wrong_users": sum(last.get(user) != total for user, total in truth.totals.items()),
        "seconds": seconds,
        "records_per_second": (1 - warm_up) * truth.edits / seconds if seconds else None,
        "first_after_kill": after[0] - killed_at if killed_at is not None and after else None,
    }
