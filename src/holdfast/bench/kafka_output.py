"""What a program has written into its topic, compared with what it should hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.storage.kafka_topic import TopicRecord

OUTPUT = "output"
WARM_UP_SHARE = 0.3
_PAUSE_SECONDS = 0.5
"""Between the rows of two epochs of a program that writes epoch by epoch."""


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
    """The rate is that at which edits were worked off after about a share of the output,
    `warm_up`, was in the topic, by the broker's own clock. `surplus` are rows beyond one per
    edit."""
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
    before = _rows_before(times, warm_up)
    seconds = times[-1] - times[before - 1] if before else 0.0
    after = [] if killed_at is None else [time for time in times if time > killed_at]
    return {
        "rows": rows,
        "surplus": rows - truth.edits,
        "exact": last == truth.totals,
        "wrong_users": sum(last.get(user) != total for user, total in truth.totals.items()),
        "seconds": seconds,
        "records_per_second": (1 - before / rows) * truth.edits / seconds if seconds else None,
        "first_after_kill": after[0] - killed_at if killed_at is not None and after else None,
    }


def _rows_before(times: Sequence[float], warm_up: float) -> int:
    """How many rows come before those that are measured.

    Who writes epoch by epoch has worked for a whole epoch when its first row comes. So such a
    program is measured from the end of an epoch on, or its first one would cost no time.
    """
    share = max(1, int(len(times) * warm_up)) if times else 0
    for at in range(min(share, len(times) - 1), 0, -1):
        if times[at] - times[at - 1] > _PAUSE_SECONDS:
            return at
    return share
