"""What a program has written into its topic, compared with what it should hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.storage.kafka_topic import TopicRecord

OUTPUT = "output"
_EARLY, _STEADY = 0.25, 0.5
"""Shares of the rows. A JVM compiles its code while it runs, for a minute or so."""
_PAUSE_SECONDS = 0.5
"""Between the rows of two epochs of a program that writes epoch by epoch."""
_EPOCHS_AT_LEAST = 4
"""That such a program has; then the end of one is never farther than half of it."""


class Truth:
    """The last total of each user, and how many edits there are."""

    def __init__(self, totals: Mapping[str, int], edits: int) -> None:
        self.totals, self.edits = totals, edits


def read_truth(file: Path) -> Truth:
    table = pq.read_table(file)
    users, totals, edits = (table.column(name).to_pylist() for name in table.column_names)
    return Truth(dict(zip(users, totals, strict=True)), sum(edits))


def figures(
    records: Iterable[TopicRecord], truth: Truth, killed_at: float | None = None
) -> dict[str, Any]:
    """Rates are those at which edits were worked off, by the broker's own clock: early, in the
    second quarter of the output, and steady, in its second half. `surplus` are rows beyond one
    per edit."""
    last: dict[str, int] = {}
    times: list[float] = []
    for record in records:
        row = json.loads(record.value or b"{}")
        if row.get("diff") == -1:
            continue  # Pathway takes the old total back before it writes the new one
        times.append(record.timestamp / 1000)
        last[row["user"]] = row["total"]
    times.sort()
    early, steady = _rows_before(times, _EARLY), _rows_before(times, _STEADY)
    after = [] if killed_at is None else [time for time in times if time > killed_at]
    return {
        "rows": len(times),
        "surplus": len(times) - truth.edits,
        "exact": last == truth.totals,
        "wrong_users": sum(last.get(user) != total for user, total in truth.totals.items()),
        "early_per_second": _rate(times, early, steady, truth.edits),
        "steady_per_second": _rate(times, steady, len(times), truth.edits),
        "first_after_kill": after[0] - killed_at if killed_at is not None and after else None,
    }


def _rate(times: Sequence[float], begin: int, end: int, edits: int) -> float | None:
    """Of the rows after the first `begin`, up to `end`; each stands for as many edits."""
    if not 0 < begin < end:
        return None
    seconds = times[end - 1] - times[begin - 1]
    return (end - begin) / len(times) * edits / seconds if seconds else None


def _rows_before(times: Sequence[float], share: float) -> int:
    """How many rows come before those after about a share of all.

    Who writes epoch by epoch has worked for a whole epoch when its first row comes. So such a
    program is measured from the end of an epoch on, the one that is nearest, or its first one
    would cost no time.
    """
    wanted, reach = int(len(times) * share), len(times) // (2 * _EPOCHS_AT_LEAST)
    near = range(max(1, wanted - reach), min(len(times), wanted + reach + 1))
    ends = [at for at in near if times[at] - times[at - 1] > _PAUSE_SECONDS]
    return min(ends, key=lambda at: abs(at - wanted), default=max(1, wanted))
