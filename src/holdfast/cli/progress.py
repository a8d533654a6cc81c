"""Progress of long work, on standard error: a line per part that has ended, and a bar."""

from __future__ import annotations

from typing import Self


class CountedProgress:
    """So many parts of `total`; the bar is shown on a terminal only."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            Elapsed(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)
        self._total, self._done = total, 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, text: str) -> None:
        """What is being done now."""
        self._bar.update(self._task, description=text)

    def count(self) -> str:
        """One more part has ended; how many have, for its line."""
        self._done = min(self._done + 1, self._total)
        self._bar.update(self._task, completed=self._done)
        return f"[{self._done}/{self._total}]"

    def say(self, line: str) -> None:
        self._bar.console.print(line, soft_wrap=True)
