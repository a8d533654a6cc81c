"""Which keys a state consists of: their number by the first characters of the key.

A key's text is that of its first column. What has grown between two states is told by the same
numbers of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.savepoint.queries import StateView, Table, connected, quoted

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class PrefixCount:
    table: str
    prefix: str | None
    """None: the keys that are null."""
    keys: int
    share: float
    """Of all keys of the table."""


@dataclass(frozen=True)
class PrefixGrowth:
    table: str
    prefix: str | None
    before: int
    after: int

    @property
    def growth(self) -> int:
        return self.after - self.before


def count_prefixes(
    view: StateView, length: int, *, table: str | None = None
) -> list[PrefixCount]:
    """By table, those with the most keys first."""
    found = []
    for name, numbers in _numbers(view, length, table).items():
        total = sum(numbers.values())
        found += [
            PrefixCount(name, prefix, keys, keys / total)
            for prefix, keys in sorted(
                numbers.items(), key=lambda each: (-each[1], each[0] or "")
            )
        ]
    return found


def compare_prefixes(
    before: StateView, after: StateView, length: int, *, table: str | None = None
) -> list[PrefixGrowth]:
    """By table, those that have grown the most first. What one side does not have counts as
    empty."""
    if table is not None:
        after.table(table)
        known = any(each.name == table for each in before.tables)
    old = _numbers(before, length, table) if table is None or known else {}
    new = _numbers(after, length, table)
    found = []
    for name in dict.fromkeys((*new, *old)):
        one, other = old.get(name, {}), new.get(name, {})
        grown = [
            PrefixGrowth(name, prefix, one.get(prefix, 0), other.get(prefix, 0))
            for prefix in {**one, **other}
        ]
        found += sorted(grown, key=lambda each: (-each.growth, -each.after, each.prefix or ""))
    return found


def _numbers(
    view: StateView, length: int, table: str | None
) -> Mapping[str, Mapping[str | None, int]]:
    tables = view.tables if table is None else [view.table(table)]
    with connected(view) as database:
        return {each.name: _of_table(database, each, length) for each in tables}


def _of_table(
    database: duckdb.DuckDBPyConnection, table: Table, length: int
) -> dict[str | None, int]:
    name = quoted(table.name)
    text = f"CAST({_first_part(database, table)} AS VARCHAR)"
    rows = database.execute(
        f"SELECT left({text}, {int(length)}), count(*) FROM {name} GROUP BY 1"
    ).fetchall()
    return {prefix: int(keys) for prefix, keys in rows}


def _first_part(database: duckdb.DuckDBPyConnection, table: Table) -> str:
    """The first column of the key. Spark's own operators have all of them in one."""
    column = quoted(table.keys[0])
    [kind] = database.sql(f"SELECT {column} FROM {quoted(table.name)} LIMIT 0").types
    if str(kind).startswith("STRUCT"):
        return f"{column}.{quoted(kind.children[0][0])}"
    return column
