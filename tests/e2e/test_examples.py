"""Examples as their reader runs them, compared with DuckDB."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from e2e.drivers import Home

EXAMPLES = Path(__file__).parents[2] / "examples"
MESSAGES = 20_000

# Two segments of 1,000 messages make an epoch. The watermark of an epoch comes from those
# before it: the largest time, less ten seconds. A window is kept for one minute after its end.
TRUTH = r"""
    WITH messages AS (
        SELECT lower(text) AS text, ts, split_part(text[9:], ':', 1)::bigint // 2000 AS epoch
        FROM read_json('messages-log/*.jsonl', columns={user: 'varchar', text: 'varchar',
            ts: 'timestamptz'}, format='newline_delimited')
    ), watermarks AS (
        SELECT epoch, max(max(ts)) OVER (ORDER BY epoch ROWS BETWEEN UNBOUNDED PRECEDING
            AND 1 PRECEDING) - INTERVAL 10 SECONDS AS watermark FROM messages GROUP BY epoch
    ), uses AS (
        SELECT tag, ts, watermark, uuid() AS id
        FROM messages JOIN watermarks USING (epoch),
            unnest(regexp_extract_all(text, '#(\w+)', 1)) AS found(tag)
    ), placed AS (
        SELECT *, since + INTERVAL 5 MINUTES AS until,
            coalesce(until + INTERVAL 1 MINUTE <= watermark, false) AS gone
        FROM (SELECT *, time_bucket(INTERVAL 1 MINUTE, ts)
            - INTERVAL 1 MINUTE * unnest(range(5)) AS since FROM uses)
    ), counts AS (
        SELECT tag, since, until, count(*) AS uses FROM placed WHERE NOT gone
        AND until <= (SELECT max(ts) - INTERVAL 10 SECONDS FROM messages) GROUP BY ALL
    ), late AS (
        SELECT tag, ts FROM placed GROUP BY id, tag, ts HAVING bool_and(gone)
    )
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_hashtags(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name in ("hashtags.py", "make_messages.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    produce = [sys.executable, "make_messages.py", str(MESSAGES)]
    subprocess.run(produce, cwd=tmp_path, check=True)
    done = home.call("run", "hashtags.py", "--available-now")
    assert done.returncode == 0, done.stderr

    def ask(question: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as database:
            database.execute("SET TimeZone='UTC'")
            database.execute(f"SET file_search_path='{tmp_path}'")
            return database.execute(f"{TRUTH} {question}").fetchall()

    # A window's last row is the one with the most uses.
    found = """SELECT tag, since, until, max(uses) FROM 'out/hashtags/*.parquet'
        GROUP BY ALL"""
    assert ask(f"({found}) EXCEPT ALL FROM counts") == []
    assert ask(f"FROM counts EXCEPT ALL ({found})") == []
    late = "SELECT tag, ts FROM 'out/hashtags-late/*.parquet'"
    assert ask(f"({late}) EXCEPT ALL FROM late") == []
    assert ask(f"FROM late EXCEPT ALL ({late})") == []
    [(windows, late_uses)] = ask(
        "SELECT (FROM counts SELECT count(*)), (FROM late SELECT count(*))"
    )
    assert windows > 300 and late_uses > 30
    firings = ask("SELECT DISTINCT firing FROM 'out/hashtags/*.parquet' ORDER BY ALL")
    assert firings == [("late",), ("on_time",)]
