"""`holdfast drill`: break a job on purpose, and check that nothing was lost."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import JsonOption
from holdfast.cli.output import Column, write_line
from holdfast.cli.progress import CountedProgress
from holdfast.cli.signals import terminable
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.drill.catalogue import AnyDrill
    from holdfast.drill.result import DrillResult


def drill(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which drills; all, if none is named."),
    ] = None,
    *,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only list the drills that there are.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the directories of drills that passed, too.")
    ] = False,
    json_output: JsonOption = False,
) -> int:
    """Break a small job at exact moments, and prove that it loses and doubles nothing.

    Each drill starts a supervised job in a temporary directory, injects one fault, waits
    until the job has recovered, and compares its output with what DuckDB computes from the
    input. A fault that did not fire fails its drill. Each takes a minute or so, longer on a
    busy machine.
    """
    from holdfast.drill.result import run_drill

    drills = _selected(names or [])
    if list_only:
        output.show_rows([_listed(each) for each in drills], _LIST, as_json=json_output)
        return 0
    results = []
    with terminable(), _folder() as folder, _Progress(len(drills)) as progress:
        for each in drills:
            progress.begin(each)
            result = run_drill(each, folder / each.name)
            progress.end(result)
            results.append(result)
            if result.outcome != "FAILED" and not keep:
                shutil.rmtree(folder / each.name, ignore_errors=True)
    output.show_rows([result.to_dict() for result in results], _RESULTS, as_json=json_output)
    if not json_output:
        _conclude(results)
    return 1 if any(result.outcome == "FAILED" for result in results) else 0


def _selected(names: Sequence[str]) -> list[AnyDrill]:
    from holdfast.drill.catalogue import DRILLS

    known = {each.name: each for each in DRILLS}
    for name in names:
        if name not in known:
            raise UsageError(
                "UNKNOWN_DRILL",
                f"there is no drill named {name!r}.",
                fix="`holdfast drill --list` shows all of them.",
            )
    return [known[name] for name in names] or list(DRILLS)


@contextmanager
def _folder() -> Iterator[Path]:
    """Stays if there is something in it to look at."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-drill-"))
    try:
        yield folder
    finally:
        if any(folder.iterdir()):
            sys.stderr.write(f"the drills' files are in {folder}\n")
        else:
            folder.rmdir()


def _conclude(results: Sequence[DrillResult]) -> None:
    for result in results:
        if result.reasons:
            write_line(f"{result.drill.name}: {result.outcome}")
            for reason in result.reasons:
                write_line(f"  {output.clean(reason)}")
    counts = {
        outcome: sum(result.outcome == outcome for result in results)
        for outcome in ("passed", "FAILED", "not run")
    }
    write_line(", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number))


# -- while it runs ------------------------------------------------------------------------


class _Progress(CountedProgress):
    def begin(self, drill: AnyDrill) -> None:
        self.step(f"{drill.name}: {drill.fault}")

    def end(self, result: DrillResult) -> None:
        line = f"{self.count()} {result.drill.name}: {result.outcome}"
        self.say(f"{line}, {output.seconds(result.seconds)}")


# -- tables -------------------------------------------------------------------------------


def _listed(drill: AnyDrill) -> dict[str, Any]:
    return {
        "drill": drill.name,
        "fault": drill.fault,
        "moment": drill.moment.value,
        "when": drill.moment.meaning,
        "ends": drill.ends.error if drill.ends else None,
        "class": drill.ends.failure_class if drill.ends else None,
        "recovery": drill.recovery,
    }


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(each["error"] or each["state"] for each in attempts)


_DRILL = Column(key="drill", title="DRILL")
_FAULT = Column(key="fault", title="FAULT")
_MOMENT = Column(key="moment", title="MOMENT")
_LIST = [
    _DRILL,
    _FAULT,
    _MOMENT,
    Column(key="when", title="WHEN"),
    Column(key="ends", title="ATTEMPT ENDS WITH"),
    Column(key="class", title="CLASS"),
    Column(key="recovery", title="COMES BACK BY"),
]
_RESULTS = [
    _DRILL,
    _FAULT,
    _MOMENT,
    Column(key="fired", title="FIRED", text=lambda points: "yes" if points else "NO"),
    Column(key="attempts", title="ATTEMPTS", text=_attempts),
    Column(key="outcome", title="OUTCOME"),
    Column(
        key="exact", title="EXACT", text=lambda exact: {True: "yes", False: "NO"}.get(exact, "")
    ),
    Column(key="seconds", title="TOOK", text=output.seconds, right=True),
]
