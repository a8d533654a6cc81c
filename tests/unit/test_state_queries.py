"""State as tables, compared without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import UsageError
from holdfast.savepoint.canonical import CanonicalState
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
