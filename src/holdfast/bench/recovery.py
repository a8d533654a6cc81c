"""Time from kill -9 of a supervised driver to the next committed epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from holdfast.bench import inputs, programs, report
from holdfast.bench.crashes import KILLED
from holdfast.bench.measure import Failed, seconds_since_1970
from holdfast.bench.programs import Program
from holdfast.bench.report import Bar, Events
from holdfast.bench.section import PROCESS, Result, Row, Section, Summary, Work
from holdfast.bench.states import check_states
from holdfast.config import RuntimeConfig
from holdfast.control.training import missing_archive, start_training
from holdfast.errors import RunFailedError

_KEYS = 100_000
_RECORDS = 10_000
_KILLS = 5
_EPOCHS = 4
"""Of each attempt, before it is killed."""
_BAR_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One kill, in seconds. Detect to first epoch add up to the total."""

    total: float
    detect: float
    """Until the supervisor has seen it, and nothing of the driver is left."""
    python: float
    """Interpreter and imports of the next driver, until it asks for a session."""
    jvm: float
    planning: float
    query: float
    """From the planned job to the beginning of the first epoch."""
    first_epoch: float
    first_epoch_planning: float
    workers: float
    """Of the first epoch: waiting for Python workers."""
    load: float
    """Of the first epoch: loading state, all partitions together."""
    warm_epoch: float | None
    """Median of the attempt's other epochs."""


def recoveries(events: Events) -> list[Recovery]:
    """Of each kill that an epoch followed."""
    parts = [list(part) for part in _between_kills(events)]
    found = [_recovery(part) for part in parts[1:]]
    return [recovery for recovery in found if recovery is not None]


def _between_kills(events: Events) -> Iterator[Iterator[dict[str, Any]]]:
    cuts = [at for at, event in enumerate(events) if event["event"] == KILLED]
    for begin, end in zip((0, *cuts), (*cuts, len(events)), strict=True):
        yield (dict(event) for event in events[begin:end])


def _recovery(events: Events) -> Recovery | None:
    epochs = [event for event in events if event["event"] == "epoch"]
    by_kind = {event["event"]: event for event in events}
    if not epochs or not {"restart", "started"} <= set(by_kind):
        return None
    first, others = epochs[0], epochs[1:]
    restart, timings = by_kind["restart"], by_kind["started"]["timings"]
    killed, began, ended = (
        seconds_since_1970(text)
        for text in (by_kind[KILLED]["at"], first["started"], first["ended"])
    )
    seen = seconds_since_1970(restart["at"]) + restart["data"]["delay"]
    asked = by_kind["started"]["arrived"] - timings["query"]
    return Recovery(
        total=ended - killed,
        detect=seen - killed,
        python=asked - seen,
        jvm=timings["jvm"],
        planning=timings["plan"] - timings["jvm"],
        query=began - asked - timings["plan"],
        first_epoch=ended - began,
        first_epoch_planning=first["phases"]["plan"],
        workers=first["phases"]["workers"],
        load=first["phases"]["load"],
        warm_epoch=median(map(_epoch_seconds, others)) if others else None,
    )


def _epoch_seconds(event: Mapping[str, Any]) -> float:
    return seconds_since_1970(event["ended"]) - seconds_since_1970(event["started"])


def _plan_recovery(work: Work) -> list[Row]:
    keys = work.scaled(_KEYS, at_least=10)
    source = work.folder / "inputs" / f"recovery-{keys}"
    program = programs.crashing(
        "bench-recovery",
        work.folder / "runs" / "recovery" / "process",
        source=source,
        files_per_epoch=2,
        kills=work.scaled(_KILLS),
        epochs=_EPOCHS,
    )
    return [
        Row(
            name=PROCESS,
            program=program,
            batch=work.scaled(_RECORDS, at_least=2),
            source=source,
            keys=keys,
            kind="process",
        )
    ]


def _prepare_recovery(work: Work) -> None:
    for row in _plan_recovery(work):
        _make_class_archive(row.program)
        inputs.key_space(
            row.source,
            keys=row.keys,
            preload_epochs=1,
            # An epoch that was committed just before the kill may not have been reported.
            epochs=(work.scaled(_KILLS) + 1) * (_EPOCHS + 1),
            file_records=row.batch // 2,
        )


def _make_class_archive(program: Program) -> None:
    """As it is on a machine on which a job has run for some minutes."""
    program.scratch.mkdir(parents=True, exist_ok=True)
    runtime = RuntimeConfig(
        storage=program.scratch, master=programs.MASTER, cache=str(program.home / "cache")
    )
    archive = missing_archive(runtime)
    if archive is not None:
        log = program.scratch / "training.log"
        start_training(runtime, archive, log).wait()
        if not archive.exists():
            raise RunFailedError(
                "CLASS_ARCHIVE_NOT_MADE",
                "no archive of Spark's classes could be made; recovery would be measured "
                "without one.",
                fix=f"look into {log}.",
            )


def _summarise_recovery(results: Sequence[Result]) -> Summary:
    rows: list[dict[str, Any]] = []
    for result in results:
        found = recoveries(result.run.events) if result.run else []
        runs = [asdict(recovery) for recovery in found]
        rows.append(
            {
                "name": result.row.name,
                "keys": result.row.keys,
                "batch": result.row.batch,
                "failed": result.outcome.reason if isinstance(result.outcome, Failed) else None,
                "kills": len(runs),
                "runs": runs,
                "longest": max((run["total"] for run in runs), default=None),
                "exact": result.exact,
                **report.medians(runs),
            }
        )
    bars = [
        Bar(
            what=f"from kill -9 to the next epoch, {row['keys']:,} keys",
            bar=_BAR_SECONDS,
            measured=row.get("total"),
            at_least=False,
            unit="seconds",
        )
        for row in rows
    ]
    return {"rows": rows, "bars": [bar.to_dict() for bar in bars]}


SECTION = Section(
    name="recovery",
    plan=_plan_recovery,
    prepare=_prepare_recovery,
    check=check_states,
    summarise=_summarise_recovery,
)
