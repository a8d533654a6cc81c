"""What a savepoint costs: to take it, to the job that runs meanwhile, to start from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from holdfast.bench import inputs, programs, report
from holdfast.bench.live_savepoints import AT_REST, LIVE, TAKEN
from holdfast.bench.measure import Epoch, Failed, Measured, seconds_since_1970
from holdfast.bench.report import Bar, Events
from holdfast.bench.restores import (
    CANONICAL,
    EXPORTED,
    REPARTITIONED,
    RESCALED,
    RESTORED,
    SAME,
)
from holdfast.bench.section import (
    HEAP_LIMIT,
    PROCESS,
    SMALL_BATCH,
    Progress,
    Result,
    Row,
    Section,
    Summary,
    Work,
)
from holdfast.bench.state_size import WARM_UP, preload_epochs
from holdfast.bench.states import case, check_cases

_FEW_KEYS, _MANY_KEYS = 100_000, 1_000_000
_EPOCHS = 45
_LEFT = 3
"""Epochs after the last savepoint of the running job: what is started from it goes on."""
_AT_REST = 5
_ROUNDS = 3
_JOB = "bench-process"

# Rows of the table.
NATIVE = "native savepoint, job {}"
EPOCH_WITHOUT, EPOCH_WITH = "epoch without a savepoint", "epoch with one taken meanwhile"
START, RESCALE = "start from a savepoint", "start with 5 partitions instead of 2"
SPARK = "Spark's own repartition to 5"
EXPORT, START_CANONICAL = "canonical savepoint", "start from a canonical savepoint"
_RESTORING = "starts from a savepoint"

# Bars.
_TAKE_SECONDS = 0.3
_GROWTH_SHARE = 0.5
"""Of the growth in keys. At 1 a savepoint would be a copy of all the state."""
_EPOCH_RATIO = 1.1
_START_SECONDS = 6.0
_RESCALE_RATIO = 1.2


# -- what is run --------------------------------------------------------------------------


def _plan_savepoints(work: Work) -> list[Row]:
    few, many = (
        _saving_row(work, work.scaled(keys, at_least=100)) for keys in (_FEW_KEYS, _MANY_KEYS)
    )
    program = programs.restoring(
        many.program, _folder(work) / "restores", rounds=_ROUNDS, heap_limit=HEAP_LIMIT
    )
    restores = Row(
        name=_RESTORING,
        program=program,
        batch=many.batch,
        source=many.source,
        keys=many.keys,
        kind=many.kind,
    )
    return [few, many, restores]


def _saving_row(work: Work, keys: int) -> Row:
    source = work.folder / "inputs" / f"savepoints-{keys}-{work.file_records}"
    warm = preload_epochs(work, keys) + WARM_UP
    run = programs.holdfast(
        _JOB,
        _folder(work) / f"process-{keys}",
        source=source,
        files_per_epoch=SMALL_BATCH,
        settings={"heap_limit": HEAP_LIMIT},
    )
    last = preload_epochs(work, keys) + _EPOCHS - 1 - _LEFT
    return Row(
        name=PROCESS,
        program=programs.saving(_JOB, run, first=warm, last=last, at_rest=_AT_REST),
        batch=work.batch(SMALL_BATCH),
        source=source,
        keys=keys,
        skip_epochs=warm,
        kind="process",
    )


def _folder(work: Work) -> Path:
    return work.folder / "runs" / "savepoints"


def _prepare_savepoints(work: Work) -> None:
    for row in _plan_savepoints(work):
        inputs.key_space(
            row.source,
            keys=row.keys,
            preload_epochs=preload_epochs(work, row.keys),
            epochs=_EPOCHS,
            file_records=work.file_records,
        )


def _check_savepoints(
    work: Work, results: Sequence[Result], progress: Progress
) -> dict[int, bool]:
    """A job of which savepoints were taken ends with the right state, and so does one that is
    started from them, in each way."""
    cases = [
        case(f"{at} {checkpoint}", result.row, checkpoint)
        for at, result in enumerate(results)
        if result.run
        for checkpoint in _checkpoints(result.row, result.run)
    ]
    found = check_cases(work, cases, progress)
    verdicts: dict[int, bool] = {}
    for name, exact in found.items():
        at = int(name.partition(" ")[0])
        verdicts[at] = exact and verdicts.get(at, True)
    return verdicts


def _checkpoints(row: Row, run: Measured) -> list[Path]:
    if row.name != _RESTORING:
        return [row.program.checkpoint]
    # Of each way the last one is left.
    return [
        Path(path)
        for path in {
            event["way"]: event["checkpoint"] for event in _of(run.events, RESTORED)
        }.values()
    ]


# -- what it shows ------------------------------------------------------------------------


def _summarise_savepoints(results: Sequence[Result]) -> Summary:
    rows = [row for result in results for row in _rows(result)]
    return {"rows": rows, "bars": [bar.to_dict() for bar in _bars(rows)]}


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    failed = result.outcome.reason if isinstance(result.outcome, Failed) else None
    events = result.run.events if result.run else []
    shown = _restore_rows if result.row.name == _RESTORING else _saving_rows
    for row in shown(result, events):
        yield {"keys": result.row.keys, "failed": failed, "exact": result.exact} | row


def _saving_rows(result: Result, events: Events) -> Iterator[dict[str, Any]]:
    taken = _of(events, TAKEN)
    for meanwhile in (AT_REST, LIVE):
        those = [event for event in taken if event["meanwhile"] == meanwhile]
        yield _figures(
            NATIVE.format(meanwhile),
            those,
            lambda event: event["seconds"],
            parts=("find", "link", "hash", "finish"),
        )
    epochs = result.run.epochs[result.row.skip_epochs :] if result.run else []
    disturbed = [epoch for epoch in epochs if any(_meets(epoch, each) for each in taken)]
    quiet = [epoch for epoch in epochs if epoch not in disturbed]
    for name, those_epochs in ((EPOCH_WITHOUT, quiet), (EPOCH_WITH, disturbed)):
        yield {
            "name": name,
            "runs": len(those_epochs),
            "median": report.median_seconds(those_epochs),
            "longest": report.longest_seconds(those_epochs),
            "all": [round(epoch.seconds, 3) for epoch in those_epochs],
        }


def _meets(epoch: Epoch, taken: Any) -> bool:
    """Whether a savepoint was being taken in an epoch. Less than a tenth of one does not count:
    it belongs to the next."""
    started, ended = (seconds_since_1970(taken[name]) for name in ("started", "ended"))
    overlap = min(epoch.ended, ended) - max(epoch.started, started)
    return overlap > (ended - started) / 10


def _restore_rows(_: Result, events: Events) -> Iterator[dict[str, Any]]:
    restored = _of(events, RESTORED)
    for name, way in ((START, SAME), (RESCALE, RESCALED)):
        yield _start(name, restored, way)
    yield _figures(SPARK, _of(events, REPARTITIONED), lambda event: event["seconds"]) | {
        "exact": None
    }
    yield _figures(EXPORT, _of(events, EXPORTED), lambda event: event["seconds"])
    yield _start(START_CANONICAL, restored, CANONICAL)


def _start(name: str, restored: Events, way: str) -> dict[str, Any]:
    """The attempt's own phase; looking at every byte before it is told apart."""
    those = [event for event in restored if event["way"] == way]
    return _figures(
        name, those, lambda event: event["restore"], parts=("verify", "first_epoch")
    )


def _figures(
    name: str, events: Events, seconds: Callable[[Any], float], parts: Sequence[str] = ()
) -> dict[str, Any]:
    """Medians over what was done several times."""
    times = [seconds(event) for event in events]
    return {
        "name": name,
        "runs": len(events),
        "median": median(times) if times else None,
        "longest": max(times, default=None),
        "all": times,
        "files": events[-1].get("files") if events else None,
        "bytes": events[-1].get("bytes") if events else None,
        **report.medians([{part: event[part] for part in parts} for event in events]),
    }


def _of(events: Events, kind: str) -> list[Any]:
    return [event for event in events if event["event"] == kind]


def _bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    few, many = (count(row["keys"] for row in rows) for count in (min, max))
    taken = NATIVE.format(AT_REST)

    def figure(name: str, keys: int, of: str = "median") -> float | None:
        return report.find(rows, of, name=name, keys=keys)

    verify, start = figure(START, many, "verify"), figure(START, many)
    growth = report.ratio(figure(taken, many), figure(taken, few))
    bars = [
        Bar(
            what=f"native savepoint of {many:,} keys",
            bar=_TAKE_SECONDS,
            measured=figure(taken, many),
            unit="seconds",
            at_least=False,
        ),
        Bar(
            what=f"time of a native savepoint with {many / few:.0f} times the keys",
            bar=many / few * _GROWTH_SHARE,
            measured=growth,
            at_least=False,
        ),
    ]
    bars += [
        Bar(
            what=f"{EPOCH_WITH} against {EPOCH_WITHOUT}, {keys:,} keys",
            bar=_EPOCH_RATIO,
            measured=report.ratio(figure(EPOCH_WITH, keys), figure(EPOCH_WITHOUT, keys)),
            at_least=False,
        )
        for keys in (few, many)
    ]
    return [
        *bars,
        Bar(
            what=f"{START} of {many:,} keys, verified, beyond Spark's own start",
            bar=_START_SECONDS,
            measured=None if start is None or verify is None else verify + start,
            unit="seconds",
            at_least=False,
        ),
        Bar(
            what=f"{RESCALE} against {SPARK}, {many:,} keys",
            bar=_RESCALE_RATIO,
            measured=report.ratio(figure(RESCALE, many), figure(SPARK, many)),
            at_least=False,
        ),
    ]


SECTION = Section(
    name="savepoints",
    plan=_plan_savepoints,
    prepare=_prepare_savepoints,
    check=_check_savepoints,
    summarise=_summarise_savepoints,
)
