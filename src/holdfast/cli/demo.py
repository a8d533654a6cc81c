"""`holdfast demo`: the Wikipedia story, with a kill -9 in the middle and a proof at the end."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import JsonOption, settings_for

if TYPE_CHECKING:
    from holdfast.demo.place import DemoPlace
    from holdfast.demo.screen import Screen
    from holdfast.demo.story import DemoResult


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where everything goes; emptied first if an earlier demo made it. "
            "Default: demo, in holdfast's home.",
        ),
    ] = None,
    edits: Annotated[
        int, typer.Option("--edits", metavar="N", min=1_000, help="How many edits.")
    ] = 200_000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="The same seed, the same edits.")
    ] = 0,
    json_output: JsonOption = False,
) -> int:
    """Watch a job survive kill -9, and check every row of its output.

    A stream of synthetic Wikipedia edits, a running balance per user, a driver that is
    killed in the middle of an epoch and started again; then DuckDB computes the same from
    the input, and both are compared. It takes about a minute and needs no server.
    """
    from holdfast.demo.place import DemoPlace
    from holdfast.demo.proof import require_duckdb
    from holdfast.demo.screen import RichScreen, SilentScreen
    from holdfast.demo.story import tell

    require_duckdb()
    place = DemoPlace(directory or settings_for().values.home / "demo")
    screen: Screen = SilentScreen() if json_output else RichScreen()
    with _terminable():
        result = tell(place, screen, edits=edits, seed=seed)
    if json_output:
        output.print_json(result.to_dict())
    else:
        _conclude(place, screen, result)
    return 0 if result.proof.holds else 1


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does: the driver must not outlive the demo."""

    def handle(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _conclude(place: DemoPlace, screen: Screen, result: DemoResult) -> None:
    from holdfast.demo.place import JOB, JOB_FILE

    screen.result(result.proof)
    edits, users = output.count(result.edits), output.count(result.proof.users)
    if result.proof.holds:
        verdict = (
            f"All equal: {edits} edits of {users} users, none lost, none counted twice, "
            f"one kill -9. {result.seconds:.0f} s."
        )
    else:
        verdict = "The output differs from the input. This must not happen: please report it."
    screen.lines(verdict, [])
    home = f"--home {shlex.quote(str(place.directory))}"
    screen.lines(
        "\nLook at it",
        [
            ("the job", str(JOB_FILE)),
            ("output", f"{place.balances}/*.parquet"),
            ("input", f"{place.edits}/*.jsonl"),
            ("checkpoint", str(place.job.checkpoint)),
            ("driver's log", str(place.log)),
        ],
    )
    screen.lines(
        "\nTry next",
        [
            ("every epoch", f"holdfast checkpoints {JOB} {home}"),
            ("both attempts", f"holdfast attempts {JOB} {home}"),
            ("its state now", f"holdfast show {JOB} {home}"),
        ],
    )
