"""`holdfast demo`: the Wikipedia story, with a kill -9 in the middle and a proof at the end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import JsonOption, settings_for
from holdfast.cli.signals import terminable

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
    """Watch a job survive kill -9 and an upgrade, and check every row of its output.

    A stream of synthetic Wikipedia edits, a running balance per user, a driver that is killed
    in the middle of an epoch, a job that restarts by itself, is stopped with a savepoint and
    comes back with other code and another parallelism; then DuckDB computes the same from the
    input, and both are compared. It takes about two minutes and needs no server.
    """
    from holdfast.demo.place import DemoPlace
    from holdfast.demo.screen import RichScreen, SilentScreen
    from holdfast.demo.story import tell

    place = DemoPlace(directory or settings_for().values.home / "demo")
    screen: Screen = SilentScreen() if json_output else RichScreen()
    with terminable():
        result = tell(place, screen, edits=edits, seed=seed)
    if json_output:
        output.print_json(result.to_dict())
    else:
        _conclude(place, screen, result)
    return 0 if result.proof.holds else 1


def _conclude(place: DemoPlace, screen: Screen, result: DemoResult) -> None:
    from holdfast.demo.place import JOB, JOB_FILE

    screen.result(result.proof)
    edits, users = output.count(result.edits), output.count(result.proof.users)
    if result.proof.holds:
        verdict = (
            f"All equal: {edits} edits of {users} users, none lost, none counted twice, "
            f"one kill -9, one upgrade, one rollback. {result.seconds:.0f} s."
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
            ("supervisor's log", str(place.log)),
        ],
    )
    screen.lines(
        "\nTry next",
        [
            ("every epoch", f"holdfast checkpoints {JOB} {home}"),
            ("all attempts", f"holdfast attempts {JOB} {home}"),
            ("its savepoints", f"holdfast savepoint tree {JOB} {home}"),
            ("a balance", f"holdfast state get {JOB} balances NAME {home}"),
            ("its state now", f"holdfast show {JOB} {home}"),
        ],
    )
