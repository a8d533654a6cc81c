"""Reading, comparing and correcting state as plain columns, by SQL (DuckDB).

Every step is a table under its uid: `SELECT * FROM balances WHERE total < 0`. A row is a key.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import NotFoundError, UsageError, shorten
from holdfast.savepoint.canonical import CanonicalState
from holdfast.storage.files import list_names, make_directory, remove_tree

if TYPE_CHECKING:
    import duckdb

_PARTITION = "partition_id"
"""A column of Spark's reader that says nothing about the state."""


@dataclass(frozen=True)
class Answer:
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool = False
    """Whether there are more rows."""

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


_EDITS = {"INSERT", "UPDATE", "DELETE"}


@dataclass(frozen=True)
class Table:
    """The state of a step, or of one side of a join."""

    name: str
    uid: str
    files: Path
    keys: tuple[str, ...]
    kind: str

    @property
    def source(self) -> str:
        return f"read_parquet({_text(self.files / '*.parquet')}, union_by_name = true)"


@dataclass(frozen=True)
class StateView:
    """The state of one moment of a job."""

    title: str
    state: CanonicalState
    identity: JobIdentity

    @property
    def tables(self) -> list[Table]:
        found = []
        for uid, signature in self.identity.operators.items():
            keys = tuple(name for name, _ in signature["keys"])
            if signature["kind"] == "process":
                found.append(Table(uid, uid, self.state.rows(uid), keys, "process"))
                continue
            native = self.state.native(uid)
            for part in list_names(native):
                name = uid if part == "rows" else f"{uid}/{part}"
                found.append(Table(name, uid, native / part, ("key",), "native"))
        return [table for table in found if any(table.files.glob("*.parquet"))]

    def table(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in self.tables)
        raise NotFoundError(
            "STEP_NOT_FOUND",
            f"{self.title} has no state of a step {shorten(name)}.",
            fix=f"it has: {known or 'none'}.",
        )


def counts(view: StateView) -> list[dict[str, Any]]:
    """The tables: their columns and how many keys they have."""
    with connected(view) as database:
        return [
            {
                "table": table.name,
                "kind": table.kind,
                "keys": _scalar(database, f"SELECT count(*) FROM {quoted(table.name)}"),
                "columns": {
                    name: kind
                    for name, kind, *_ in database.execute(
                        f"DESCRIBE {quoted(table.name)}"
                    ).fetchall()
                },
            }
            for table in view.tables
        ]


def get(view: StateView, uid: str, key: Sequence[str]) -> Answer:
    """The row of one key, whose parts are given as text."""
    table = view.table(uid)
    _require_whole_key(table, key)
    same = " AND ".join(f"CAST({quoted(name)} AS VARCHAR) = ?" for name in table.keys)
    return query(view, f"SELECT * FROM {quoted(table.name)} WHERE {same}", parameters=key)


def _require_whole_key(table: Table, key: Sequence[str]) -> None:
    if len(key) != len(table.keys):
        raise UsageError(
            "KEY_INCOMPLETE",
            f"step {table.name!r} is keyed by {', '.join(table.keys)}, and {len(key)} "
            f"part{'s were' if len(key) != 1 else ' was'} given.",
            fix="give one per key column.",
        )


def query(
    view: StateView,
    sql: str,
    *,
    limit: int | None = None,
    parameters: Sequence[Any] = (),
    guard: Guard | None = None,
) -> Answer:
    """`guard`: for SQL of somebody who may see the state, and nothing else of the machine."""
    with ExitStack() as stack:
        database = stack.enter_context(connected(view))
        stack.enter_context(_sql_errors(view))
        if guard is not None:
            stack.enter_context(guard.around(database, view, sql))
        found = database.execute(sql, list(parameters))
        columns = tuple(column[0] for column in found.description or ())
        rows = found.fetchall() if limit is None else found.fetchmany(limit + 1)
    cut = limit is not None and len(rows) > limit
    return Answer(columns, tuple(rows[:limit] if cut else rows), cut)


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What a query from afar may take. Files other than the state cannot be reached from it,
    nothing can be written, and it ends in time."""

    seconds: float = 30.0
    memory: str = "1GB"
    threads: int = 2

    @contextmanager
    def around(
        self, database: duckdb.DuckDBPyConnection, view: StateView, sql: str
    ) -> Iterator[None]:
        # EXPLAIN is left out because EXPLAIN ANALYZE carries out what it explains.
        if [each.type.name for each in database.extract_statements(sql)] != ["SELECT"]:
            raise UsageError(
                "SQL_REFUSED",
                f"{shorten(sql)} is not one SELECT.",
                fix="state is only read here; give one SELECT statement.",
            )
        folders = ", ".join(_text(table.files) for table in view.tables)
        for setting in (
            f"memory_limit = {_text(self.memory)}",
            f"threads = {self.threads}",
            f"allowed_directories = [{folders}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            database.execute(f"SET {setting}")
        end = threading.Timer(self.seconds, database.interrupt)
        end.daemon = True
        end.start()
        try:
            yield
        finally:
            end.cancel()
            end.join()  # it must not interrupt what is closed by then


@dataclass(frozen=True)
class TableDiff:
    table: str
    keys_before: int
    keys_after: int
    added: int
    removed: int
    changed: int
    rows: Answer
    """Change, key, and every variable before and after."""

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.changed)


def diff(
    before: StateView,
    after: StateView,
    *,
    table: str | None = None,
    key: Sequence[str] = (),
    limit: int = 20,
) -> list[TableDiff]:
    """Which keys are new, gone, or have other values. A step that only one of them has counts
    as empty in the other. `key` looks at one key of a step only."""
    names = list(dict.fromkeys(each.name for each in (*before.tables, *after.tables)))
    if table is None and key:
        if len(names) != 1:
            raise UsageError(
                "KEY_INCOMPLETE",
                "a key was given, but not the step that it is a key of.",
                fix=f"say which: --uid UID. There are: {', '.join(names) or 'none'}.",
            )
        table = names[0]
    if table is not None:
        after.table(table)
        names = [table]
        if key:
            _require_whole_key(after.table(table), key)
    with connected(before, "a") as database:
        _attach(database, after, "b")
        return [
            _compared(database, before, after, name, key=key, limit=limit) for name in names
        ]


def _compared(
    database: duckdb.DuckDBPyConnection,
    before: StateView,
    after: StateView,
    name: str,
    *,
    key: Sequence[str],
    limit: int,
) -> TableDiff:
    sides = {"a": before, "b": after}
    known = {
        side: _columns(database, f"{side}.{quoted(name)}")
        for side, view in sides.items()
        if any(each.name == name for each in view.tables)
    }
    keys = (after if "b" in known else before).table(name).keys
    if len(known) == 2 and before.table(name).keys != keys:
        raise UsageError(
            "KEYS_DIFFER",
            f"step {name!r} is keyed by {', '.join(before.table(name).keys)} in "
            f"{before.title} and by {', '.join(keys)} in {after.title}.",
            fix="compare savepoints with the same keys, or two queries of your own.",
        )
    variables = [
        column
        for column in dict.fromkeys(column for found in known.values() for column in found)
        if column not in keys and column != _PARTITION
    ]
    parts = {side: _side(side, name, known.get(side), keys, variables) for side in sides}
    on = " AND ".join(f"a.{quoted(key)} IS NOT DISTINCT FROM b.{quoted(key)}" for key in keys)
    other = " OR ".join(f"a.{quoted(v)} IS DISTINCT FROM b.{quoted(v)}" for v in variables)
    change = (
        "CASE WHEN a.__here IS NULL THEN 'added' WHEN b.__here IS NULL THEN 'removed' "
        f"WHEN {other or 'false'} THEN 'changed' END"
    )
    columns = [f"COALESCE(a.{quoted(key)}, b.{quoted(key)}) AS {quoted(key)}" for key in keys]
    for variable in variables:
        columns.append(f"a.{quoted(variable)} AS {quoted(f'{variable} before')}")
        columns.append(f"b.{quoted(variable)} AS {quoted(f'{variable} after')}")
    joined = f"FROM ({parts['a']}) a FULL JOIN ({parts['b']}) b ON {on}"
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE found AS SELECT {change} AS change, "
        f"{', '.join(columns)} {joined} WHERE {change} IS NOT NULL"
    )
    if key:
        others = " OR ".join(
            f"CAST({quoted(column)} AS VARCHAR) IS DISTINCT FROM {_text(part)}"
            for column, part in zip(keys, key, strict=True)
        )
        database.execute(f"DELETE FROM found WHERE {others}")
    numbers = dict(database.execute("SELECT change, count(*) FROM found GROUP BY 1").fetchall())
    order = ", ".join(quoted(key) for key in keys)
    shown = database.execute(f"SELECT * FROM found ORDER BY change, {order} LIMIT {limit}")
    names = tuple(column[0] for column in shown.description or ())
    rows = tuple(shown.fetchall())
    return TableDiff(
        table=name,
        keys_before=_count(database, "a", name, known),
        keys_after=_count(database, "b", name, known),
        added=numbers.get("added", 0),
        removed=numbers.get("removed", 0),
        changed=numbers.get("changed", 0),
        rows=Answer(names, rows, cut=sum(numbers.values()) > len(rows)),
    )


def _side(
    side: str,
    name: str,
    known: Sequence[str] | None,
    keys: Sequence[str],
    variables: Sequence[str],
) -> str:
    """One side of a comparison, with all columns that either side has."""
    if known is None:
        other = "a" if side == "b" else "b"
        return f"SELECT *, true AS __here FROM {other}.{quoted(name)} WHERE false"
    columns = [quoted(key) for key in keys]
    columns += [quoted(v) if v in known else f"NULL AS {quoted(v)}" for v in variables]
    return f"SELECT {', '.join(columns)}, true AS __here FROM {side}.{quoted(name)}"


def _count(
    database: duckdb.DuckDBPyConnection, side: str, name: str, known: Mapping[str, Any]
) -> int:
    if side not in known:
        return 0
    return int(_scalar(database, f"SELECT count(*) FROM {side}.{quoted(name)}"))


@dataclass(frozen=True)
class Edited:
    table: str
    rows: int
    """Added, removed or with other values."""


def edit(view: StateView, statements: Sequence[str], target: CanonicalState) -> list[Edited]:
    """Apply SQL to the tables of process steps; those that change are written to `target`."""
    import duckdb

    changed = []
    with duckdb.connect() as database:
        tables = [table for table in view.tables if table.kind == "process"]
        for table in tables:
            database.execute(
                f"CREATE TABLE {quoted(table.name)} AS SELECT * FROM {table.source}"
            )
        with _sql_errors(view):
            _refuse_other_than_edits(database, statements)
            for statement in statements:
                database.execute(statement)
        for table in tables:
            number = _differences(database, table)
            if number:
                _refuse_doubles(database, table)
                _replace_files(database, table, target.rows(table.uid))
                changed.append(Edited(table.name, number))
    return changed


def _refuse_other_than_edits(
    database: duckdb.DuckDBPyConnection, statements: Sequence[str]
) -> None:
    """Columns and tables stay as the code declares them, and other files are left alone."""
    for text in statements:
        for statement in database.extract_statements(text):
            if statement.type.name not in _EDITS:
                raise UsageError(
                    "SQL_REFUSED",
                    f"{shorten(text)} is neither UPDATE, DELETE nor INSERT: it would do "
                    "something else than correct keys and values.",
                    fix="correct keys with these; `holdfast state query` reads, and a state "
                    "variable is added or dropped in the code of the job.",
                )


def _differences(database: duckdb.DuckDBPyConnection, table: Table) -> int:
    now, stored = quoted(table.name), table.source
    removed = f"(SELECT * FROM {stored} EXCEPT ALL SELECT * FROM {now})"
    added = f"(SELECT * FROM {now} EXCEPT ALL SELECT * FROM {stored})"
    numbers = [_scalar(database, f"SELECT count(*) FROM {part}") for part in (removed, added)]
    return int(max(numbers))


def _refuse_doubles(database: duckdb.DuckDBPyConnection, table: Table) -> None:
    keys = ", ".join(quoted(key) for key in table.keys)
    double = database.execute(
        f"SELECT {keys} FROM {quoted(table.name)} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if double is not None:
        raise UsageError(
            "KEY_TWICE",
            f"after the edit, step {table.name!r} has the key {shorten(double)} twice.",
            fix="update the row that is there instead of inserting another one.",
        )


def _replace_files(database: duckdb.DuckDBPyConnection, table: Table, folder: Path) -> None:
    remove_tree(folder)
    make_directory(folder)
    file = folder / "part-00000.parquet"
    database.execute(f"COPY {quoted(table.name)} TO {_text(file)} (FORMAT parquet)")


@contextmanager
def connected(view: StateView, schema: str = "main") -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    with duckdb.connect() as database:
        _attach(database, view, schema)
        yield database


def _attach(database: duckdb.DuckDBPyConnection, view: StateView, schema: str = "main") -> None:
    database.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for table in view.tables:
        database.execute(
            f"CREATE VIEW {schema}.{quoted(table.name)} AS SELECT * FROM {table.source}"
        )


@contextmanager
def _sql_errors(view: StateView) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        known = ", ".join(quoted(table.name) for table in view.tables)
        raise UsageError(
            "SQL_REFUSED",
            f"DuckDB refused the SQL: {str(error).strip()}",
            fix=f"the tables of {view.title} are {known}; `holdfast state tables` shows their "
            "columns.",
        ) from error


def _columns(database: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    return [row[0] for row in database.execute(f"DESCRIBE {table}").fetchall()]


def _scalar(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    found = database.execute(sql).fetchone()
    assert found is not None
    return found[0]


def quoted(name: str) -> str:
    """Quoted, as SQL writes names."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def plain(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
