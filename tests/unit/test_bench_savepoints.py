"""The section `savepoints` of the benchmark without a JVM: what it makes of what it is told."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench import live_savepoints, restores, savepoints
from holdfast.bench.live_savepoints import AT_REST, LIVE, Phases
from holdfast.bench.measure import Epoch, Failed, Measured, PeakMemory
from holdfast.bench.section import Result, Row, Work

START = datetime(2026, 1, 1, tzinfo=UTC)
SECTION = savepoints.SECTION


@pytest.fixture
def plan(tmp_path: Path) -> list[Row]:
    return SECTION.plan(Work(folder=tmp_path, scale=1.0))


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def taken(meanwhile: str, began: float, seconds: float, **figures: Any) -> dict[str, Any]:
    return {
        "event": "savepoint",
        "meanwhile": meanwhile,
        "started": at(began),
        "ended": at(began + seconds),
        "files": 90,
        "bytes": 7_000,
        "seconds": seconds,
        **{"find": 0.01, "link": 0.02, "hash": 0.04, "finish": 0.03},
        **figures,
    }


def ran(row: Row, events: list[dict[str, Any]], epochs: list[Epoch] | None = None) -> Result:
    run = Measured(
        spawned=0,
        seconds=1,
        events=events,
        epochs=epochs or [],
        started_at=0,
        timings={},
        memory=PeakMemory(),
    )
    return Result(row=row, outcome=run, exact=True)


def saved(row: Row, *, rest: float, slower: float = 0.0) -> Result:
    """Epochs of a second; every second one has a savepoint in it and is slower."""
    begun, epochs, events = START.timestamp(), [], []
    for number in range(row.skip_epochs + 8):
        disturbed = number >= row.skip_epochs and number % 2 == 0
        ended = begun + 1 + slower * disturbed
        epochs.append(
            Epoch(number=number, started=begun, ended=ended, rows=row.batch, phases={})
        )
        if disturbed:
            # Its last hundredth is in the next epoch, which it does not belong to.
            events.append(taken(LIVE, ended - START.timestamp() - 0.198, 0.2))
        begun = ended
    events += [taken(AT_REST, 1_000, rest * times) for times in (1, 9, 1)]
    return ran(row, events, epochs)


def started(way: str, restore: float) -> dict[str, Any]:
    return {
        "event": restores.RESTORED,
        "way": way,
        "verify": 0.5,
        "restore": restore,
        "first_epoch": 3.0,
        "checkpoint": f"/{way}",
    }


RESTORE_EVENTS = [
    started(restores.SAME, 2.0),
    started(restores.RESCALED, 3.0),
    {"event": restores.REPARTITIONED, "seconds": 2.0},
    {"event": restores.EXPORTED, "seconds": 9.0, "files": 12, "bytes": 5_000},
    started(restores.CANONICAL, 8.0),
]


def test_figures_and_bars(plan: list[Row]) -> None:
    few, many, starts = plan
    assert (few.keys, many.keys, starts.keys) == (100_000, 1_000_000, 1_000_000)
    summary = SECTION.summarise(
        [
            saved(few, rest=0.1, slower=0.0),
            saved(many, rest=0.2, slower=0.15),
            ran(starts, RESTORE_EVENTS),
        ]
    )
    rows = {(row["name"], row["keys"]): row for row in summary["rows"]}
    assert len(rows) == len(summary["rows"]) == 13
    rest = rows[savepoints.NATIVE.format(AT_REST), many.keys]
    assert (rest["runs"], rest["median"], rest["longest"]) == (3, 0.2, pytest.approx(1.8))
    assert (rest["files"], rest["bytes"], rest["hash"]) == (90, 7_000, 0.04)
    quiet = rows[savepoints.EPOCH_WITHOUT, many.keys]
    disturbed = rows[savepoints.EPOCH_WITH, many.keys]
    assert (quiet["runs"], disturbed["runs"]) == (4, 4)
    assert (quiet["median"], disturbed["median"]) == pytest.approx((1.0, 1.15))
    start = rows[savepoints.START, many.keys]
    assert (start["median"], start["verify"], start["first_epoch"]) == (2.0, 0.5, 3.0)
    assert rows[savepoints.SPARK, many.keys]["exact"] is None
    found = [(bar["measured"], bar["bar"], bar["verdict"]) for bar in summary["bars"]]
    assert found == [
        (0.2, 0.3, "met"),
        (2.0, 5.0, "met"),
        (pytest.approx(1.0), 1.1, "met"),
        (pytest.approx(1.15), 1.1, "missed by 4.5 %"),
        (2.5, 6.0, "met"),
        (1.5, 1.2, "missed by 25.0 %"),
    ]


def test_a_program_that_failed_has_rows_without_figures(plan: list[Row]) -> None:
    failed = [
        Result(row=row, outcome=Failed(reason="exit code 1", log=Path("log.txt")))
        for row in plan
    ]
    summary = SECTION.summarise(failed)
    assert {row["failed"] for row in summary["rows"]} == {"exit code 1"}
    assert {bar["verdict"] for bar in summary["bars"]} == {"not measured"}


def test_the_state_of_every_way_to_start_is_compared(plan: list[Row]) -> None:
    *_, starts = plan
    again = {**started(restores.SAME, 1.0), "checkpoint": "/same-again"}
    run = ran(starts, [*RESTORE_EVENTS, again]).run
    assert run is not None
    found = {str(path) for path in savepoints._checkpoints(starts, run)}
    assert found == {"/same-again", "/rescaled", "/canonical"}


def test_parts_of_a_savepoint_add_up() -> None:
    phases = Phases()
    for what, count in (("copy", 3), ("hash", 4)):
        for done in range(count):
            phases(what, done + 1, count)
    parts = phases.seconds()
    total = parts.pop("seconds")
    assert list(parts) == ["find", "link", "hash", "finish"]
    assert sum(parts.values()) == pytest.approx(total, abs=0.001)
    assert all(part >= 0 for part in parts.values())


def test_a_job_that_fails_has_no_savepoints(tmp_path: Path) -> None:
    store = tmp_path / "savepoints"
    options = ["--job", "none", "--registry", "sqlite://", "--savepoints", str(store)]
    options += ["--first", "1", "--last", "9", "--at-rest", "1", "--", sys.executable, "-c"]
    assert live_savepoints.main([*options, "import sys; sys.exit(7)"]) == 7
    assert not store.exists()
    options = ["--savepoints", str(store), "--registry", "sqlite://"]
    options += ["--folder", str(tmp_path), "--rounds", "1", "--heap-limit", "1 GiB"]
    with pytest.raises(SystemExit, match="no savepoint of a running job"):
        restores.main(options)
