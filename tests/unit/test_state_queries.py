"""State as tables, compared without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import UsageError
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.prefixes import compare_prefixes, count_prefixes
from holdfast.savepoint.queries import StateView, diff, edit


def view(path: Path, **totals: dict[str, int]) -> StateView:
    """One step per argument, with the total of each user."""
    state = CanonicalState(path)
    for uid, rows in totals.items():
        state.rows(uid).mkdir(parents=True)
        table = pa.table({"user": list(rows), "total": list(rows.values())})
        pq.write_table(table, state.rows(uid) / "part-0.parquet")
    step = {"kind": "process", "keys": [["user", "string"]], "variables": {}}
    identity = JobIdentity(
        job_id="a1",
        name="wiki",
        parallelism=2,
        key_groups=64,
        operators=dict.fromkeys(totals, step),
    )
    return StateView(path.name, state, identity)


def test_the_key_of_a_job_with_one_step_needs_no_uid(tmp_path: Path) -> None:
    before = view(tmp_path / "a", sum={"Zoë": 1, "太郎": 2})
    after = view(tmp_path / "b", sum={"Zoë": 3, "太郎": 4})
    [found] = diff(before, after, key=["Zoë"])
    assert [row["user"] for row in found.rows.records()] == ["Zoë"]


def test_the_key_of_one_of_several_steps_is_asked_for(tmp_path: Path) -> None:
    before = view(tmp_path / "a", sum={"Zoë": 1}, largest={"Zoë": 1})
    with pytest.raises(UsageError, match="KEY_INCOMPLETE") as unclear:
        diff(before, before, key=["Zoë"])
    assert "There are: sum, largest." in str(unclear.value.fix)


KINDS = {"bot-": 7, "ann": 3, "太郎": 2}
USERS = [f"{kind}{n}" for kind, count in KINDS.items() for n in range(count)]


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_keys_by_prefix_against_a_count_of_our_own(tmp_path: Path, length: int) -> None:
    stored = view(tmp_path / "a", sum=dict.fromkeys(USERS, 1), largest={"Zoë": 1})
    found = count_prefixes(stored, length)
    truth = Counter(user[:length] for user in USERS)
    assert {each.prefix: each.keys for each in found if each.table == "sum"} == truth
    assert [each.keys for each in found if each.table == "sum"] == sorted(
        truth.values(), reverse=True
    )
    assert found[0].share == truth.most_common(1)[0][1] / len(USERS)
    assert [each.prefix for each in count_prefixes(stored, length, table="largest")] == [
        "Zoë"[:length]
    ]


def test_growth_by_prefix_against_a_count_of_our_own(tmp_path: Path) -> None:
    gone, come = USERS[-2:], [f"bot-{n}" for n in range(100, 120)] + ["carl"]
    now = [user for user in USERS if user not in gone] + come
    before = view(tmp_path / "a", sum=dict.fromkeys(USERS, 1))
    after = view(tmp_path / "b", sum=dict.fromkeys(now, 1), largest={"Zoë": 1})
    found = compare_prefixes(before, after, 3)
    old, new = (Counter(user[:3] for user in users) for users in (USERS, now))
    grown = {each.prefix: (each.before, each.after) for each in found if each.table == "sum"}
    assert grown == {prefix: (old[prefix], new[prefix]) for prefix in old | new}
    assert [each.growth for each in found if each.table == "sum"] == [20, 1, 0, -1, -1]
    assert [each.growth for each in found if each.table == "largest"] == [1]
    assert compare_prefixes(before, after, 3, table="largest")[0].before == 0


def test_prefixes_of_keys_that_are_no_text(tmp_path: Path) -> None:
    stored = view(tmp_path / "a", sum={})
    for part, keys in enumerate(([None, 12], [13, 2])):
        table = pa.table({"user": pa.array(keys, pa.int64()), "total": [1, 1]})
        pq.write_table(table, stored.state.rows("sum") / f"part-{part}.parquet")
    found = count_prefixes(stored, 1)
    assert {each.prefix: each.keys for each in found} == {"1": 2, "2": 1, None: 1}


def test_prefixes_of_the_keys_of_sparks_own_operators(tmp_path: Path) -> None:
    stored = view(tmp_path / "a")
    rows = stored.state.native("totals") / "rows"
    rows.mkdir(parents=True)
    keys = [{"user": user, "page": "p"} for user in USERS]
    pq.write_table(pa.table({"key": keys, "value": [1] * len(keys)}), rows / "part-0.parquet")
    step = {"kind": "native", "keys": [["user", "string"]]}
    stored = replace(stored, identity=replace(stored.identity, operators={"totals": step}))
    found = count_prefixes(stored, 3)
    assert {each.prefix: each.keys for each in found} == Counter(user[:3] for user in USERS)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE sum",
        "ALTER TABLE sum ADD COLUMN more INTEGER",
        "UPDATE sum SET total = 2; COPY sum TO 'stolen.parquet'",
    ],
)
def test_what_is_no_correction_of_keys_is_refused(tmp_path: Path, sql: str) -> None:
    stored = view(tmp_path / "a", sum={"Zoë": 1})
    with pytest.raises(UsageError, match="neither UPDATE, DELETE nor INSERT"):
        edit(stored, [sql], CanonicalState(tmp_path / "b"))
    assert not (tmp_path / "b").exists()
    [changed] = edit(stored, ["UPDATE sum SET total = 2"], CanonicalState(tmp_path / "b"))
    assert changed.rows == 1
