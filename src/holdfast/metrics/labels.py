"""Labels stay few, whatever jobs and events are called: each value makes a time series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

OTHER = "other"
"""What all values share that would be one too many."""
MOST_KINDS = 32
MOST_PHASES = 16
MOST_UIDS = 100

_WORD = re.compile(r"^[a-z][a-z0-9_]{0,31}$")


def bounded(values: Iterable[str], most: int) -> dict[str, str]:
    """The label of each value: itself for the first `most`, :data:`OTHER` for the rest."""
    kept = list(dict.fromkeys(values))
    return {value: value if at < most else OTHER for at, value in enumerate(kept)}


def words(values: Iterable[str], most: int) -> dict[str, str]:
    """As :func:`bounded`, and what is not a plain word is :data:`OTHER` as well."""
    found = list(values)
    plain = bounded((value for value in found if _WORD.match(value)), most)
    return {value: plain.get(value, OTHER) for value in found}


def folded(amounts: Mapping[str, float], labels: Mapping[str, str]) -> dict[str, float]:
    """Amounts by label: what has the same label is added up."""
    found: dict[str, float] = {}
    for value, amount in amounts.items():
        label = labels[value]
        found[label] = found.get(label, 0) + amount
    return found
