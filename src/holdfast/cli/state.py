"""`holdfast state`: look keys up, query, compare and correct what jobs remember."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, open_registry, settings_for
from holdfast.cli.output import Column
from holdfast.cli.savepoint import SavepointArgument, shown_progress

if TYPE_CHECKING:
    from holdfast.control.state_views import StateViews
    from holdfast.savepoint.queries import Answer, TableDiff

app = typer.Typer(
    no_args_is_help=True, help="Look up, query, compare and correct the state of jobs."
)
Where = Annotated[
    str,
    typer.Argument(
        metavar="JOB|SAVEPOINT",
        help="A job (its newest epoch), or a savepoint: id, label, directory, 'latest'.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Rows to show at the most.")
]


@app.command()
def tables(where: Where, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Show the tables: one per stateful step, with its columns and how many keys it has."""
    from holdfast.savepoint.queries import counts

    with _views(home, quiet=json_output) as views:
        view = views.open(where)
    found = counts(view)
    if not json_output:
        output.write_line(output.clean(view.title))
    output.show_rows(
        found,
        [
            Column(key="table", title="TABLE"),
            Column(key="keys", title="KEYS", text=output.count, right=True),
            Column(key="columns", title="COLUMNS", text=_columns_text),
        ],
        as_json=json_output,
        empty="It has no stateful step.",
    )


@app.command()
def get(
    where: Where,
    uid: Annotated[str, typer.Argument(metavar="UID", help="The step.")],
    key: Annotated[
        list[str], typer.Argument(metavar="KEY…", help="The key, one argument per column.")
    ],
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Show the state of one key. Exit code 1 if the step does not know it."""
    from holdfast.savepoint.queries import get as look_up

    with _views(home, quiet=json_output) as views:
        view = views.open(where)
    answer = look_up(view, uid, key)
    _show(answer, as_json=json_output, empty=f"{view.title}: {uid} has no such key.")
    return 0 if answer.rows else 1


@app.command()
def query(
    where: Where,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="SELECT … FROM UID …")],
    limit: Limit = 1000,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Query the state with SQL (DuckDB): every step is a table of the name of its uid."""
    from holdfast.savepoint.queries import query as ask

    with _views(home, quiet=json_output) as views:
        view = views.open(where)
    _show(ask(view, sql, limit=limit), as_json=json_output, empty="No rows.")


@app.command()
def diff(
    before: Where,
    after: Where,
    *,
    uid: Annotated[
        str | None, typer.Option("--uid", metavar="UID", help="Only this step.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Only this key; once per key column."),
    ] = None,
    by_prefix: Annotated[
        int | None,
        typer.Option(
            "--by-prefix",
            metavar="N",
            min=1,
            help="Only how many keys there are by the first N characters, before and after.",
        ),
    ] = None,
    limit: Limit = 20,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> int:
    """Show which keys are new, gone or have other values. Exit code 1 if there are any."""
    from holdfast.savepoint.prefixes import compare_prefixes
    from holdfast.savepoint.queries import diff as compare

    if by_prefix is not None and key:
        raise typer.BadParameter("it counts many keys, and --key is one: leave one out.")
    with _views(home, quiet=json_output) as views:
        first, second = views.open(before), views.open(after)
    if by_prefix is not None:
        grown = compare_prefixes(first, second, by_prefix, table=uid)
        rows = [asdict(each) | {"growth": each.growth} for each in grown]
        title = f"{first.title} -> {second.title}"
        _show_by_prefix(title, rows, _GROWTH_COLUMNS, limit, as_json=json_output)
        return 0 if all(each.growth == 0 for each in grown) else 1
    found = compare(first, second, table=uid, key=key or (), limit=limit)
    if json_output:
        output.print_json([_diff_record(each) for each in found])
    else:
        output.write_line(output.clean(f"{first.title} -> {second.title}"))
        for each in found:
            _show_diff(each)
    return 0 if all(each.same for each in found) else 1


@app.command()
def prefixes(
    where: Where,
    uid: Annotated[
        str | None, typer.Argument(metavar="[UID]", help="The step; default: all of them.")
    ] = None,
    *,
    length: Annotated[
        int, typer.Option("--length", metavar="N", min=1, help="Characters of a prefix.")
    ] = 3,
    limit: Limit = 20,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Count the keys by the first characters of their first column, the most first.

    `holdfast state diff A B --by-prefix N` shows which of them have grown.
    """
    from holdfast.savepoint.prefixes import count_prefixes

    with _views(home, quiet=json_output) as views:
        view = views.open(where)
    found = [asdict(each) for each in count_prefixes(view, length, table=uid)]
    _show_by_prefix(view.title, found, _PREFIX_COLUMNS, limit, as_json=json_output)


@app.command()
def edit(
    savepoint: SavepointArgument,
    sql: Annotated[
        list[str],
        typer.Option(
            "--sql", metavar="SQL", help="UPDATE, DELETE or INSERT; may be given again."
        ),
    ],
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="A name to find it by.")
    ] = "",
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a new savepoint with corrected state; the old one stays as it is.

    It remembers the SQL that made it. `holdfast rollback JOB SAVEPOINT` lets the job go on
    from it.
    """
    from holdfast.clock import SystemClock
    from holdfast.control.edits import edit_savepoint

    with (
        open_registry(home) as registry,
        shown_progress(quiet=json_output) as progress,
    ):
        settings = settings_for(home=home).values
        edited, changes = edit_savepoint(
            registry, settings, savepoint, sql, SystemClock(), label=label, progress=progress
        )
    manifest = edited.manifest
    if json_output:
        output.print_json(
            {
                "id": manifest.id,
                "path": str(edited.path),
                "parent": manifest.parent,
                "changed": [asdict(each) for each in changes],
            }
        )
        return
    for each in changes:
        output.write_line(f"{each.table}: {each.rows:,} keys changed")
    output.write_line(f"savepoint {manifest.id}, from {manifest.parent}")
    output.write_line(f"  kept in     {edited.path}")
    output.write_line(f"  use it      holdfast rollback {manifest.identity.name} {manifest.id}")


def _value_text(value: Any) -> str:
    return "" if value is None else output.clean(str(value))


_PREFIX_COLUMNS = [
    Column(key="table", title="TABLE"),
    Column(key="prefix", title="PREFIX", text=_value_text),
    Column(key="keys", title="KEYS", text=output.count, right=True),
    Column(key="share", title="SHARE", text=lambda share: f"{share:.1%}", right=True),
]

_GROWTH_COLUMNS = [
    Column(key="table", title="TABLE"),
    Column(key="prefix", title="PREFIX", text=_value_text),
    Column(key="before", title="KEYS BEFORE", text=output.count, right=True),
    Column(key="after", title="KEYS AFTER", text=output.count, right=True),
    Column(key="growth", title="GROWTH", text=lambda keys: f"{keys:+,}", right=True),
]


def _show_by_prefix(
    title: str, rows: list[dict[str, Any]], columns: list[Column], limit: int, *, as_json: bool
) -> None:
    """`limit` is for people, and for each table."""
    if as_json:
        output.print_json(rows)
        return
    output.write_line(output.clean(title))
    shown: list[dict[str, Any]] = []
    for table in dict.fromkeys(row["table"] for row in rows):
        shown += [row for row in rows if row["table"] == table][:limit]
    output.show_rows(shown, columns, as_json=False, empty="There are no keys.")
    if len(shown) < len(rows):
        output.write_line(f"There are {len(rows) - len(shown):,} more prefixes: --limit.")


@contextmanager
def _views(home: Path | None, *, quiet: bool) -> Iterator[StateViews]:
    from holdfast.control.state_views import StateViews

    with open_registry(home) as registry, shown_progress(quiet=quiet) as progress:
        yield StateViews(registry, settings_for(home=home).values, progress)


def _show(answer: Answer, *, as_json: bool, empty: str) -> None:
    from holdfast.savepoint.queries import plain

    rows = [
        {name: plain(value) for name, value in record.items()} for record in answer.records()
    ]
    columns = [Column(key=name, title=name, text=_value_text) for name in answer.columns]
    output.show_rows(rows, columns, as_json=as_json, empty=empty)
    if answer.cut and not as_json:
        output.write_line(f"There are more than these {len(rows):,} rows: --limit.")


def _show_diff(found: TableDiff) -> None:
    output.write_line(
        f"{output.clean(found.table)}: {found.keys_before:,} -> {found.keys_after:,} keys; "
        f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed"
    )
    if found.rows.rows:
        _show(found.rows, as_json=False, empty="")


def _diff_record(found: TableDiff) -> dict[str, Any]:
    from holdfast.savepoint.queries import plain

    fields = {name: value for name, value in vars(found).items() if name != "rows"}
    return {**fields, "rows": [plain(each) for each in found.rows.records()]}


def _columns_text(columns: Any) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
