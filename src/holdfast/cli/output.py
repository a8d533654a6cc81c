"""One result, two forms: a table for people, JSON for programs.

Commands describe *what* they show; only this module knows how. Data comes from job names,
error texts and file names, so it is cleaned before it reaches a terminal: an escape
sequence in a job's name must not be able to move the cursor or forge a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

# CSI and the other escape sequences, then OSC strings up to their end.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)
# C0 and C1 controls, and the characters that reverse the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PIPE_WIDTH = 250
"""A pipe has no width; Rich would assume 80 columns and cut."""

Format = Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: a key of the rows' mappings, and how to write its values."""

    key: str
    title: str
    text: Format = str
    right: bool = False


@dataclass(frozen=True)
class Branch:
    """A line of a tree, and what hangs below it."""

    text: str
    below: tuple[Branch, ...] = ()


def clean(text: str, *, keep_lines: bool = False) -> str:
    """The text without anything that a terminal would act on."""
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return text if keep_lines else text.replace("\n", " ").replace("\t", " ")


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    as_json: bool,
    empty: str = "nothing to show",
) -> None:
    """A list: in JSON with all its keys, in the table with the columns named."""
    if as_json:
        print_json(rows)
    elif not rows:
        write_line(empty)
    else:
        console = _console()
        console.print(_table(rows, columns))


def show_fields(fields: Mapping[str, Any], columns: Sequence[Column], *, as_json: bool) -> None:
    """One thing, a line per field."""
    if as_json:
        print_json(fields)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for column in columns:
        table.add_row(Text(column.title), Text(_cell(fields, column)))
    _console().print(table)


def show_trees(trees: Sequence[Branch]) -> None:
    from rich.tree import Tree

    for branch in trees:
        tree = Tree(_line(branch))
        _grow(tree, branch.below)
        _console().print(tree)


def write_fields_line(fields: Mapping[str, Any], columns: Sequence[Column]) -> None:
    """A row of a table that is still growing: every field with its name, on one line."""
    cells = ((column.title.lower(), _cell(fields, column)) for column in columns)
    write_line("  ".join(f"{title} {cell}" for title, cell in cells if cell))


def print_json(value: Any) -> None:
    """One document, indented; ASCII only, so that no locale and no terminal can spoil it."""
    write_line(json.dumps(value, indent=2, default=plain))


def print_json_line(value: Any) -> None:
    """One document per line, for output that goes on."""
    write_line(json.dumps(value, default=plain))


def write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, HoldfastError):
        return json.loads(value.to_json())
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


# -- how values are written in tables -----------------------------------------------------


def time_of_day(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    if value is None:
        return ""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def optional(value: object) -> str:
    return "" if value is None else str(value)


# -- rich, imported only by commands that draw something ----------------------------------


def _console() -> Console:
    from rich.console import Console

    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPE_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        # Text, not str: Rich would read [brackets] in a string as markup.
        table.add_row(*(Text(_cell(row, column)) for column in columns))
    return table


def _grow(tree: Tree, branches: Sequence[Branch]) -> None:
    for branch in branches:
        _grow(tree.add(_line(branch)), branch.below)


def _line(branch: Branch) -> Text:
    from rich.text import Text

    return Text(clean(branch.text))


def _cell(row: Mapping[str, Any], column: Column) -> str:
    return clean(column.text(row.get(column.key)))
