"""Hypothesis strategies for Wikipedia edits, with the awkward ones that real streams have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

SCHEMA = "user string, page string, diff bigint, ts timestamp, bot boolean, comment string"
START = datetime(2026, 1, 1, tzinfo=UTC)
AWKWARD_USERS = ("", "ann", "Ann", "ann ", "Zoë", "太郎", "192.0.2.1", "\U0001f989", "a" * 200)


def users(*, nulls: bool = False) -> st.SearchStrategy[str | None]:
    """Names of users: few, so that they come again; odd ones among them."""
    few: st.SearchStrategy[str | None] = st.sampled_from(
        (*AWKWARD_USERS, *(f"user-{number}" for number in range(8)))
    )
    return st.none() | few if nulls else few


def edits(*, nulls: bool = False, hours: float = 1.0) -> st.SearchStrategy[dict[str, Any]]:
    """One edit, as a dict with the columns of :data:`SCHEMA`, within some hours of START."""
    end = START + timedelta(hours=hours)
    times = st.datetimes(START.replace(tzinfo=None), end.replace(tzinfo=None))
    return st.fixed_dictionaries(
        {
            "user": users(nulls=nulls),
            "page": st.text(max_size=12),
            "diff": st.integers(-(2**31), 2**31),
            "ts": times.map(lambda time: time.replace(tzinfo=UTC)),
            "bot": st.booleans(),
            "comment": st.none() | st.text(max_size=12),
        }
    )


def epochs(
    *, nulls: bool = False, hours: float = 1.0, max_size: int = 20
) -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    """Edits cut into epochs, in any order of time; some epochs are empty."""
    epoch = st.lists(edits(nulls=nulls, hours=hours), max_size=max_size)
    return st.lists(epoch, max_size=8)
