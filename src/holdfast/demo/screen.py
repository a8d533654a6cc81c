"""What the audience sees: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from holdfast.cli.output import clean, count
from holdfast.demo.proof import Proof

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_LINE_EVERY_SECONDS = 5.0
_PIPE_WIDTH = 120
_BAR_WIDTH = 40


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """How far the story is."""

    edits: int
    produced: int = 0
    committed: int = 0
    epochs: int = 0
    open_epoch: int | None = None
    attempt: int = 0
    state: str = ""
    users: int = 0


class Screen(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def event(self, text: str, *, style: str = "") -> None:
        """Something happened; stays on the screen."""

    def update(self, snapshot: Snapshot) -> None:
        """The figures as of now."""

    def result(self, proof: Proof) -> None: ...

    def lines(self, title: str, pairs: Sequence[tuple[str, str]]) -> None: ...


class SilentScreen:
    """For --json."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """There is nothing to put back."""

    def event(self, text: str, *, style: str = "") -> None:
        """Say nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Say nothing."""

    def result(self, proof: Proof) -> None:
        """Say nothing."""

    def lines(self, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Say nothing."""


class RichScreen:
    """Events scroll by; below them, on a terminal, the figures stand still."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        live = sys.stdout.isatty()
        self._console = Console(
            file=sys.stdout,
            width=None if live else _PIPE_WIDTH,
            highlight=False,
            emoji=False,
            markup=False,
        )
        self._began = time.monotonic()
        self._snapshot = Snapshot(edits=0)
        self._next_line = 0.0
        # A terminal that cannot move the cursor gets lines, too.
        self._live = (
            Live(
                console=self._console,
                get_renderable=self._figures,
                refresh_per_second=8,
                transient=True,
            )
            if live and not self._console.is_dumb_terminal
            else None
        )

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, text: str, *, style: str = "") -> None:
        from rich.text import Text

        first, *rest = clean(text, keep_lines=True).split("\n")
        line = Text(f"{self._clock()}  ", style="dim")
        line.append(first, style=style or "default")
        for more in rest:
            line.append(f"\n         {more}", style="dim")
        self._console.print(line, soft_wrap=self._live is None)

    def update(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        now = time.monotonic()
        if self._live is None and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_SECONDS
            self._console.print(f"{self._clock()}    {_one_line(snapshot)}", soft_wrap=True)

    def result(self, proof: Proof) -> None:
        self._console.print()
        self._console.print(_balance_table(proof))
        self._console.print(_check_table(proof))

    def lines(self, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(Text(name), Text(clean(value)))
        self._console.print(Text(title, style="bold"))
        self._console.print(table)

    def _clock(self) -> str:
        minutes, rest = divmod(time.monotonic() - self._began, 60)
        return f"{minutes:2.0f}:{rest:04.1f}"

    def _figures(self) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        now = self._snapshot
        bars = Table.grid(padding=(0, 2))
        bars.add_column(justify="right")
        bars.add_column()
        bars.add_column(justify="right")
        for name, value, color in (
            ("produced", now.produced, "blue"),
            ("committed", now.committed, "green"),
        ):
            bars.add_row(
                name, _bar(value, now.edits, color), f"{value:,} / {now.edits:,} edits"
            )
        state = Text(
            f"{now.state or '-'}", style="bold red" if now.state == "KILLED" else "bold"
        )
        line = Text(f"{self._clock()}   attempt {now.attempt}  ").append(state)
        line.append(f"   {now.epochs:,} epochs   {now.users:,} users in state   ")
        if now.open_epoch is not None:
            line.append(_open_text(now), style="yellow")
        return Padding(Group(bars, line), (1, 0, 0, 2))


def _bar(value: int, total: int, color: str) -> Any:
    from rich.progress_bar import ProgressBar

    return ProgressBar(
        total=max(total, 1),
        completed=value,
        width=_BAR_WIDTH,
        complete_style=color,
        finished_style=color,
    )


def _open_text(now: Snapshot) -> str:
    running = now.state in ("RUNNING", "STOPPING")
    return f"epoch {now.open_epoch} {'in flight' if running else 'interrupted'}"


def _one_line(now: Snapshot) -> str:
    flight = "" if now.open_epoch is None else f", {_open_text(now)}"
    return (
        f"produced {count(now.produced)}, committed {count(now.committed)} of "
        f"{count(now.edits)} edits; attempt {now.attempt} {now.state}, "
        f"{count(now.epochs)} epochs, {count(now.users)} users{flight}"
    )


def _balance_table(proof: Proof) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("USER", ""):
        table.add_column(title, overflow="fold")
    for title in ("EDITS", "ROWS OUT", "BY DUCKDB", "BY THE JOB"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in proof.balances:
        table.add_row(
            Text("null" if row.user is None else clean(row.user)),
            Text(row.who, style="dim"),
            count(row.edits),
            count(row.rows),
            count(row.expected),
            "none" if row.found is None else count(row.found),
            _verdict(equal=row.equal),
        )
    return table


def _check_table(proof: Proof) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"ALL {count(proof.users)} USERS")
    table.add_column("EXPECTED", justify="right")
    table.add_column("FOUND", justify="right")
    table.add_column("")
    for check in proof.checks:
        table.add_row(
            check.what, count(check.expected), count(check.found), _verdict(equal=check.equal)
        )
    return table


def _verdict(*, equal: bool) -> Text:
    from rich.text import Text

    return Text("equal", style="green") if equal else Text("DIFFERS", style="bold red")
