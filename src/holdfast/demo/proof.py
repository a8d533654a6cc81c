"""Compares the output with an independent computation over the input.

DuckDB reads the input as JSON lines and every Parquet file a reader of the output would
see; neither Spark nor holdfast takes part. Each edit carries a number, each output row the
number of its edit and how many edits of that user came before. So the rows of a user must be
the sequence 1, 2, 3, … and each total the sum of the edits so far: an edit that was lost,
counted twice, or counted from a wrong state breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import RunFailedError
from holdfast.storage.filelog import segments

if TYPE_CHECKING:
    import duckdb

_TOP = 3
_ANONYMOUS = r"^(10\.|2001:db8:)"
# Not those written from right to left: terminals disagree on what a table row is then.
_OTHER_SCRIPT = r"\p{Han}|\p{Hangul}|\p{Cyrillic}|\p{Greek}|\p{Devanagari}"
_RIGHT_TO_LEFT = r"\p{Hebrew}|\p{Arabic}"


@dataclass(frozen=True, kw_only=True)
class Balance:
    """One user's balance by the input and by the output; None if the output has none."""

    who: str
    user: str | None
    edits: int
    rows: int
    expected: int
    found: int | None

    @property
    def equal(self) -> bool:
        return self.edits == self.rows and self.expected == self.found


@dataclass(frozen=True, kw_only=True)
class Check:
    """A number that must be another."""

    what: str
    expected: int
    found: int | None

    @property
    def equal(self) -> bool:
        return self.expected == self.found


@dataclass(frozen=True, kw_only=True)
class Proof:
    users: int
    balances: tuple[Balance, ...]
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        return all(row.equal for row in self.balances) and all(c.equal for c in self.checks)


def prove(edits: Path, balances: Path, sent: int) -> Proof:
    """Compare what the log in `edits` holds with the Parquet files in `balances`."""
    log = [str(segment) for segment in segments(edits)]
    return prove_files(log, sorted(map(str, balances.glob("*.parquet"))), sent)


def prove_files(log: Sequence[str], published: Sequence[str], sent: int) -> Proof:
    """Compare files of edits, as JSON lines, with Parquet files of balances."""
    import duckdb

    if not log or not published:
        raise RunFailedError(
            "NOTHING_TO_COMPARE",
            f"there are no {'balances' if log else 'edits'}.",
            fix="look into supervisor.log in the demo's directory for what the job did.",
        )
    with duckdb.connect() as connection:
        _load(connection, log, published)
        users = _one(connection, "SELECT count(*) FROM expected")
        return Proof(
            users=users, balances=_balances(connection), checks=_checks(connection, sent)
        )


def _load(
    connection: duckdb.DuckDBPyConnection, log: Sequence[str], published: Sequence[str]
) -> None:
    connection.execute(
        """CREATE TABLE input AS SELECT * FROM read_json(?, format = 'newline_delimited',
        columns = {edit: 'BIGINT', user: 'VARCHAR', diff: 'BIGINT', bot: 'BOOLEAN'})""",
        [list(log)],
    )
    connection.execute(
        """CREATE TABLE output AS SELECT * FROM read_parquet(?, union_by_name = true)""",
        [list(published)],
    )
    # Only the second version of the job writes it.
    connection.execute("ALTER TABLE output ADD COLUMN IF NOT EXISTS kilobytes DOUBLE")
    connection.execute(
        """CREATE TABLE expected AS SELECT "user", count(*) AS edits,
        sum(diff)::BIGINT AS total, bool_or(bot) AS bot FROM input GROUP BY "user" """
    )
    connection.execute(
        """CREATE TABLE found AS SELECT "user", count(*) AS rows, arg_max(total, nth) AS total
        FROM output GROUP BY "user" """
    )


def _balances(connection: duckdb.DuckDBPyConnection) -> tuple[Balance, ...]:
    """The most active users, and the most active of each kind that is easy to get wrong."""
    human = f"NOT bot AND NOT regexp_matches(e.user, '{_ANONYMOUS}')"
    kinds = [
        ("most active", human, _TOP),
        ("bot", "bot AND e.user IS NOT NULL", 1),
        ("anonymous", f"regexp_matches(e.user, '{_ANONYMOUS}')", 1),
        (
            "other script",
            f"{human} AND regexp_matches(e.user, '{_OTHER_SCRIPT}') "
            f"AND NOT regexp_matches(e.user, '{_RIGHT_TO_LEFT}')",
            1,
        ),
        ("name hidden (null)", "e.user IS NULL", 1),
    ]
    shown: dict[str | None, Balance] = {}
    for who, condition, count in kinds:
        chosen = connection.execute(
            f"""SELECT e.user, e.edits, e.total, coalesce(f.rows, 0), f.total
            FROM expected e LEFT JOIN found f ON e.user IS NOT DISTINCT FROM f.user
            WHERE {condition} ORDER BY e.edits DESC, e.user LIMIT ?""",  # noqa: S608 - ours
            [count + len(shown)],
        ).fetchall()
        fresh = [row for row in chosen if row[0] not in shown][:count]
        for user, edits, expected, rows, found in fresh:
            shown[user] = Balance(
                who=who, user=user, edits=edits, rows=rows, expected=expected, found=found
            )
    return tuple(shown.values())


def _checks(connection: duckdb.DuckDBPyConnection, sent: int) -> tuple[Check, ...]:
    def number(query: str) -> Any:
        return _one(connection, query)

    edits = number("SELECT count(*) FROM input")
    return (
        Check(what="edits in the log", expected=sent, found=edits),
        Check(
            what="output rows",
            expected=edits,
            found=number("SELECT count(*) FROM output"),
        ),
        Check(
            what="edits missing from the output",
            expected=0,
            found=number("SELECT count(*) FROM input ANTI JOIN output USING (edit)"),
        ),
        Check(
            what="edits in the output twice",
            expected=0,
            found=number("SELECT count(*) - count(DISTINCT edit) FROM output"),
        ),
        Check(
            what="rows that belong to no edit of their user",
            expected=0,
            found=number(
                """SELECT count(*) FROM output o ANTI JOIN input i
                ON o.edit = i.edit AND o.user IS NOT DISTINCT FROM i.user"""
            ),
        ),
        Check(
            what="rows whose running total is not the sum so far",
            expected=0,
            found=number(
                """SELECT count(*) FROM (
                    SELECT o.nth, o.total,
                        row_number() OVER sofar AS place, sum(i.diff) OVER sofar AS due
                    FROM output o JOIN input i USING (edit)
                    WINDOW sofar AS (PARTITION BY o.user ORDER BY o.nth, o.edit
                        ROWS UNBOUNDED PRECEDING)
                ) WHERE nth IS DISTINCT FROM place OR total IS DISTINCT FROM due"""
            ),
        ),
        Check(
            what="rows whose kilobytes are not a thousandth of the total",
            expected=0,
            found=number(
                """SELECT count(*) FROM output
                WHERE kilobytes IS NOT NULL AND kilobytes <> total / 1000"""
            ),
        ),
        Check(
            what="users whose balance differs",
            expected=0,
            found=number(
                """SELECT count(*) FROM expected e FULL JOIN found f
                ON e.user IS NOT DISTINCT FROM f.user
                WHERE e.total IS DISTINCT FROM f.total OR e.edits IS DISTINCT FROM f.rows"""
            ),
        ),
        Check(
            what="sum of all balances",
            expected=number("SELECT coalesce(sum(diff), 0)::BIGINT FROM input"),
            found=number("SELECT coalesce(sum(total), 0)::BIGINT FROM found"),
        ),
    )


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]
