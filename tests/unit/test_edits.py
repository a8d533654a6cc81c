"""Synthetic edits: reproducible, skewed, and with everything that breaks naive code."""

from __future__ import annotations

import ipaddress
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from holdfast.demo.edits import START, generate, generate_table


@pytest.fixture(scope="module")
def edits() -> list[dict[str, Any]]:
    return list(generate(70_000, users=2_000, seed=1))


def test_same_seed_same_edits() -> None:
    assert list(generate(500, seed=4)) == list(generate(500, seed=4))
    assert list(generate(500, seed=4)) != list(generate(500, seed=5))


def test_a_longer_stream_begins_with_the_shorter_one(edits: list[dict[str, Any]]) -> None:
    assert len(edits) == 70_000  # more than one block
    assert list(generate(300, users=2_000, seed=1)) == edits[:300]
    assert (
        list(islice(generate(66_000, users=2_000, seed=1), 65_400, None))
        == edits[65_400:66_000]
    )


def test_table_holds_the_same_edits(edits: list[dict[str, Any]]) -> None:
    table = generate_table(70_000, users=2_000, seed=1)
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    for row, edit in zip(table.slice(65_000, 1_000).to_pylist(), edits[65_000:], strict=False):
        assert row == {**edit, "ts": datetime.fromisoformat(edit["ts"])}


@pytest.mark.parametrize("n", [0, 1, 65_536, 65_537])
def test_exactly_n(n: int) -> None:
    assert generate_table(n, users=10).num_rows == n
    assert sum(1 for _ in generate(n, users=10)) == n


def test_types(edits: list[dict[str, Any]]) -> None:
    kinds = {"user": str, "page": str, "diff": int, "ts": str, "bot": bool, "comment": str}
    for edit in edits[:1_000]:
        assert {name: type(value) for name, value in edit.items()} == kinds


def test_time_never_goes_back_and_begins_at_start(edits: list[dict[str, Any]]) -> None:
    times = [datetime.fromisoformat(edit["ts"]) for edit in edits]
    assert times == sorted(times)
    assert START <= times[0] < START + timedelta(seconds=10)
    assert all(edit["ts"].endswith("Z") for edit in edits)
    begin = datetime(2030, 6, 1, tzinfo=UTC)
    assert next(generate(1, start=begin))["ts"].startswith("2030-06-01T00:00:0")


def test_activity_is_skewed(edits: list[dict[str, Any]]) -> None:
    counts = [count for _, count in Counter(edit["user"] for edit in edits).most_common()]
    assert sum(counts[:20]) > 0.3 * len(edits)
    assert len(counts) > 1_800
    assert counts[0] < 0.25 * len(edits)


def test_diffs_are_mostly_small_with_large_cuts(edits: list[dict[str, Any]]) -> None:
    diffs = [edit["diff"] for edit in edits]
    assert sum(abs(diff) < 200 for diff in diffs) > 0.9 * len(diffs)
    assert sum(diff < -1_000 for diff in diffs) > 0.01 * len(diffs)
    assert max(diffs) > 10_000


def test_people_bots_and_addresses(edits: list[dict[str, Any]]) -> None:
    users = {edit["user"] for edit in edits}
    versions = Counter(version for user in users if (version := ip_version(user)))
    assert versions[4] > 20
    assert versions[6] > 20
    assert sum(not user.isascii() for user in users) > 0.3 * len(users)
    bots = {edit["user"] for edit in edits if edit["bot"]}
    assert all(user.endswith("Bot") for user in bots)
    assert not bots & {edit["user"] for edit in edits if not edit["bot"]}


def test_comments_are_unicode_now_and_then(edits: list[dict[str, Any]]) -> None:
    share = sum(not edit["comment"].isascii() for edit in edits) / len(edits)
    assert 0.05 < share < 0.5


def test_each_user_has_a_name_of_its_own() -> None:
    """Two users under one name would show as one: many edits must meet nearly all users."""
    users = 300
    met = {edit["user"] for edit in generate(60_000, users=users, seed=2)}
    assert len(met) == users


def ip_version(text: str) -> int | None:
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return None
