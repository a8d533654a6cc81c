"""Are the states that programs left exact? Asks verify.py, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.bench import programs
from holdfast.bench.measure import Failed, measure
from holdfast.bench.section import Progress, Result, Row, Work


def check_states(work: Work, results: Sequence[Result], progress: Progress) -> dict[int, bool]:
    """Of each program the state in its checkpoint."""
    found = check_cases(
        work,
        [
            case(str(at), result.row, result.row.program.checkpoint)
            for at, result in enumerate(results)
            if result.run
        ],
        progress,
    )
    return {int(name): exact for name, exact in found.items()}


def case(name: str, row: Row, checkpoint: Path) -> dict[str, str]:
    """A state to be compared with all records that its program has read."""
    return {
        "name": name,
        "kind": row.kind,
        "checkpoint": str(checkpoint),
        "source": str(row.source),
    }


def check_cases(
    work: Work, cases: Sequence[Mapping[str, str]], progress: Progress
) -> dict[str, bool]:
    """One more process reads all the states; a case that it cannot read is not exact."""
    folder = work.folder / "runs" / "verify"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    outcome = measure(programs.verifier(folder, file))
    if isinstance(outcome, Failed):
        progress.end("verify", "reading the states back", outcome)
        return {case["name"]: False for case in cases}
    return {event["name"]: event["exact"] for event in outcome.events}
