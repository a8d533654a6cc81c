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
    from holdfast.demo.stage import Stage
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
    kafka: Annotated[
        bool,
        typer.Option(
            "--kafka", help="On topics of a real Kafka broker, which it starts and ends."
        ),
    ] = False,
    json_output: JsonOption = False,
) -> int:
    """Watch a job survive kill -9 and an upgrade, and check every row of its output.

    A stream of synthetic Wikipedia edits, a running balance per user, a driver that is killed
    in the middle of an epoch, a job that restarts by itself, is stopped with a savepoint and
    comes back with other code and another parallelism; then DuckDB computes the same from the
    input, and both are compared. It takes about two minutes and needs no server; with --kafka
    it needs Maven, once, for the broker.
    """
    from holdfast.demo.place import DemoPlace
    from holdfast.demo.screen import RichScreen, SilentScreen
    from holdfast.demo.story import tell

    home = settings_for().values.home
    place = DemoPlace(directory or home / "demo")
    stage = _stage(place, home, edits, kafka=kafka)
    screen: Screen = SilentScreen() if json_output else RichScreen()
    with terminable():
        result = tell(place, stage, screen, edits=edits, seed=seed)
    if json_output:
        output.print_json(result.to_dict())
    else:
        _conclude(place, stage, screen, result)
    return 0 if result.proof.holds else 1


def _stage(place: DemoPlace, home: Path, edits: int, *, kafka: bool) -> Stage:
    if kafka:
        from holdfast.demo.kafka_stage import KafkaStage

        return KafkaStage(place, home / "cache", edits)
    from holdfast.demo.stage import FileStage

    return FileStage(place)


def _conclude(place: DemoPlace, stage: Stage, screen: Screen, result: DemoResult) -> None:
    from holdfast.demo.place import JOB

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
            ("the job", str(stage.job_file)),
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
