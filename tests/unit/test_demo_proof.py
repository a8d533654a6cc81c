"""The demo without a JVM: its proof must be able to fail, its directory to be refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.demo.job import RunningBalance
from holdfast.demo.place import DemoPlace
from holdfast.demo.producer import demo_edits
from holdfast.demo.proof import Proof, prove
from holdfast.errors import ConflictError, RunFailedError
from holdfast.state.schema import parse_columns
from holdfast.storage.filelog import FileLogProducer

EDITS = 3_000
Row = dict[str, Any]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with FileLogProducer(tmp_path / "edits", producer_id="wiki", max_records=700) as producer:
        for edit in demo_edits(EDITS, seed=3):
            producer.send(edit)
    return tmp_path / "edits"


def balances_of(edits: list[Row]) -> list[Row]:
    """The job in plain Python."""
    count: Counter[Any] = Counter()
    total: Counter[Any] = Counter()
    rows = []
    for edit in edits:
        user = edit["user"]
        count[user] += 1
        total[user] += edit["diff"]
        rows.append(
            {"user": user, "edit": edit["edit"], "nth": count[user], "total": total[user]}
        )
    return rows


@pytest.fixture
def rows() -> list[Row]:
    return balances_of(list(demo_edits(EDITS, seed=3)))


def proof_of(log: Path, rows: list[Row]) -> Proof:
    out = log.parent / "balances"
    out.mkdir()
    schema = parse_columns(str(RunningBalance.output))
    for number, start in enumerate(range(0, len(rows), 1_000)):
        table = pa.Table.from_pylist(rows[start : start + 1_000], schema=schema)
        pq.write_table(table, out / f"part-{number}.parquet")
    return prove(log, out, EDITS)


def wrong(proof: Proof) -> set[str]:
    return {check.what for check in proof.checks if not check.equal}


def test_the_right_output_is_right(log: Path, rows: list[Row]) -> None:
    proof = proof_of(log, rows)
    assert wrong(proof) == set()
    assert proof.holds
    assert proof.users == len({row["user"] for row in rows})


def test_balances_show_every_kind_of_user(log: Path, rows: list[Row]) -> None:
    shown = {row.who: row.user for row in proof_of(log, rows).balances}
    assert shown["name hidden (null)"] is None
    assert str(shown["bot"]).endswith("Bot")
    assert re.match(r"10\.|2001:", str(shown["anonymous"]))
    assert not str(shown["other script"]).isascii()


def test_another_order_of_edits_is_as_good(log: Path) -> None:
    """Files of one epoch are read side by side: a user's edits may come in any order."""
    edits = list(demo_edits(EDITS, seed=3))
    assert proof_of(log, balances_of(edits[1_500:] + edits[:1_500])).holds


def test_a_missing_row_is_found(log: Path, rows: list[Row]) -> None:
    del rows[1_234]
    assert wrong(proof_of(log, rows)) >= {
        "output rows",
        "edits missing from the output",
        "users whose balance differs",
    }


def test_a_doubled_row_is_found(log: Path, rows: list[Row]) -> None:
    proof = proof_of(log, [*rows, rows[42]])
    assert wrong(proof) >= {
        "output rows",
        "edits in the output twice",
        "rows whose running total is not the sum so far",
        "users whose balance differs",
    }


def test_one_missing_and_one_doubled_do_not_cancel_out(log: Path, rows: list[Row]) -> None:
    proof = proof_of(log, [*rows[1:], rows[1]])
    assert "output rows" not in wrong(proof)
    assert wrong(proof) >= {"edits missing from the output", "edits in the output twice"}


def test_a_wrong_last_balance_is_found(log: Path, rows: list[Row]) -> None:
    rows[-1]["total"] += 1
    assert wrong(proof_of(log, rows)) == {
        "rows whose running total is not the sum so far",
        "users whose balance differs",
        "sum of all balances",
    }


def test_a_balance_that_was_wrong_only_for_a_while_is_found(log: Path, rows: list[Row]) -> None:
    at = next(at for at, row in enumerate(rows) if row["user"] == rows[0]["user"] and at)
    rows[at]["total"] += 1
    proof = proof_of(log, rows)
    assert wrong(proof) == {"rows whose running total is not the sum so far"}
    assert all(balance.equal for balance in proof.balances)


def test_an_edit_counted_from_lost_state_is_found(log: Path, rows: list[Row]) -> None:
    """As if the state of one user had been empty after the restart."""
    edits = [edit for edit in demo_edits(EDITS, seed=3) if edit["user"] == rows[0]["user"]]
    others = [row for row in rows if row["user"] != rows[0]["user"]]
    half = len(edits) // 2
    proof = proof_of(log, others + balances_of(edits[:half]) + balances_of(edits[half:]))
    assert "rows whose running total is not the sum so far" in wrong(proof)


def test_a_row_under_another_name_is_found(log: Path, rows: list[Row]) -> None:
    rows[7]["user"] = "nobody"
    assert "rows that belong to no edit of their user" in wrong(proof_of(log, rows))


def test_a_shown_balance_that_differs_is_marked(log: Path, rows: list[Row]) -> None:
    hidden = [row for row in rows if row["user"] is None]
    for row in hidden:
        row["user"] = "null"
    proof = proof_of(log, rows)
    assert [row.who for row in proof.balances if not row.equal] == ["name hidden (null)"]
    assert not proof.holds


def test_an_edit_that_never_reached_the_log_is_found(log: Path, rows: list[Row]) -> None:
    last = max(log.glob("*.jsonl"))
    lines = last.read_text(encoding="utf-8").splitlines(keepends=True)
    gone = json.loads(lines[-1])["edit"]
    last.write_text("".join(lines[:-1]), encoding="utf-8")
    kept = [row for row in rows if row["edit"] != gone]
    assert wrong(proof_of(log, kept)) == {"edits in the log"}


def test_no_output_at_all_is_an_error(log: Path) -> None:
    with pytest.raises(RunFailedError, match="NOTHING_TO_COMPARE"):
        proof_of(log, [])


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with (
        pytest.raises(ConflictError, match="NOT_A_DEMO_DIRECTORY"),
        DemoPlace(tmp_path).made_anew(),
    ):
        pytest.fail("it was taken")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_demo_empties_the_directory_of_the_last_one(tmp_path: Path) -> None:
    place = DemoPlace(tmp_path / "demo")
    with place.made_anew():
        (place.edits / "old.jsonl").write_text("{}", encoding="utf-8")
    with place.made_anew():
        assert list(place.edits.iterdir()) == []


def test_two_demos_do_not_share_a_directory(tmp_path: Path) -> None:
    place = DemoPlace(tmp_path / "demo")
    with place.made_anew():
        (place.edits / "1.jsonl").write_text("{}", encoding="utf-8")
        with pytest.raises(ConflictError, match="DEMO_IS_RUNNING"), place.made_anew():
            pytest.fail("it was taken")
        assert len(list(place.edits.iterdir())) == 1


def test_a_driver_that_outlived_its_demo_is_noticed(tmp_path: Path) -> None:
    place = DemoPlace(tmp_path / "demo")
    with place.made_anew():
        pass
    with (
        place.job.locked(),
        pytest.raises(ConflictError, match="DEMO_IS_RUNNING"),
        place.made_anew(),
    ):
        pytest.fail("it was taken")
