"""A job is forked with other code, both go on, and the fork is promoted: exact at each step."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.timelines import SinkChoice
from holdfast.clock import SystemClock
from holdfast.control.fork_plans import plan_start
from holdfast.control.output_diff import OutputDiff, compared
from holdfast.control.registry import Registry
from holdfast.control.runner import run_job
from holdfast.errors import ConflictError, RunFailedError
from holdfast.faults import armed
from spark.processes import RunningTotal
from spark.test_going_back import EDITS, SIZE, totals, written
from spark.test_resume import SCHEMA
from spark.test_savepoints import feed_part
from spark.workplace import Pipeline, Workplace, running_totals

FORK = "job-v2"


def directory(place: Workplace, name: str = "job") -> JobDirectory:
    return JobDirectory(place.runtime().storage, name)


def start(
    place: Workplace,
    pipeline: Pipeline,
    name: str,
    origin: str,
    choice: SinkChoice | None = None,
    **options: Any,
) -> RestorePlan:
    """`holdfast run APP.py --name NAME --available-now --from ORIGIN`."""
    job, plans = place.job(pipeline, name, **options), []

    def plan() -> RestorePlan:
        plans.append(
            plan_start(
                job,
                directory(place, name),
                origin,
                place.savepoints,
                choice=choice,
                parallelism=job.parallelism,
                clock=SystemClock(),
            )
        )
        return plans[0]

    run_job(
        job,
        runtime=place.runtime(),
        registry_url=place.registry_url,
        available_now=True,
        restore=plan,
    )
    return plans[0]


def hashes(path: Path) -> set[tuple[str, str]]:
    """All but the logs: what the tests' JVM says goes to that of the first job."""
    return {
        (str(file.relative_to(path)), hashlib.sha256(file.read_bytes()).hexdigest())
        for file in path.rglob("*")
        if file.is_file() and file.suffix != ".log"
    }


def changed_after(parts: int, upto: int, factor: int) -> list[tuple[str, int]]:
    """What a job sees whose code changed after so many parts."""
    at = parts * SIZE
    return EDITS[:at] + [(user, diff * factor) for user, diff in EDITS[at : upto * SIZE]]


def rehearsed(place: Workplace, **options: Any) -> None:
    """Two parts by the job alone, then one part by both, the fork with other code."""
    feed_part(place, 0)
    feed_part(place, 1)
    place.run(totals(place))
    savepoint = place.take().manifest.id
    before = hashes(directory(place).path), hashes(place.path / "out")
    feed_part(place, 2)
    start(place, totals(place, 3), FORK, f"fork:{savepoint}", **options)
    assert (hashes(directory(place).path), hashes(place.path / "out")) == before
    place.run(totals(place))


def difference(place: Workplace) -> OutputDiff:
    return compared(directory(place), directory(place, FORK), limit=3)


def test_a_fork_is_rehearsed_compared_and_promoted(place: Workplace) -> None:
    rehearsed(place, parallelism=3)
    truth, new = running_totals(EDITS), running_totals(changed_after(2, 5, 3))
    assert written(place.path / "out") == Counter(truth[: 3 * SIZE])
    assert written(place.path / f"out.{FORK}") == Counter(new[2 * SIZE : 3 * SIZE])
    parent, fork = directory(place).load(), directory(place, FORK).load()
    assert parent and fork and fork.fork
    assert fork.job_id != parent.job_id
    assert (fork.fork.job_id, fork.fork.timeline, fork.fork.epoch) == (parent.job_id, "t0", 1)
    assert [each.origin for each in fork.timelines] == [fork.fork.savepoint]
    with Registry(place.registry_url) as registry:
        first = registry.attempts(registry.job(FORK).id)[0]
    assert first.info["from"] == f"savepoint {fork.fork.savepoint} of job job"

    # Both have read part 2; part 3 only the fork so far.
    same = difference(place)
    assert same.same_input and not same.same
    only_old = Counter(truth[2 * SIZE : 3 * SIZE]) - Counter(new[2 * SIZE : 3 * SIZE])
    assert [(each.rows, each.only[0]) for each in same.sinks] == [
        ((SIZE, SIZE), only_old.total())
    ]
    feed_part(place, 3)
    place.run(totals(place, 3), FORK, parallelism=3)
    ahead = difference(place)
    assert [each.only for each in ahead.inputs] == [(0, 1)]
    assert ahead.sinks[0].rows == (SIZE, 2 * SIZE)

    savepoint = place.take(FORK).manifest.id
    with pytest.raises(ConflictError, match="SAVEPOINT_OF_ANOTHER_JOB"):
        place.restore(totals(place, 3), str(place.savepoints.find(savepoint).path))
    with pytest.raises(ConflictError, match="1 epoch with 60 rows") as caught:
        start(place, totals(place, 3), "job", f"promote:{savepoint}")
    assert caught.value.name == "SINK_CHOICE_NEEDED"
    # Cut short at every point, then simply resumed or repeated.
    promotion = f"promote:{savepoint}"
    with armed("restore.copied=raise"), pytest.raises(RunFailedError):
        start(place, totals(place, 3), "job", promotion, "rewind")
    assert written(place.path / "out") == Counter(truth[: 3 * SIZE])
    with armed("sink.mid_adoption=raise"), pytest.raises(RunFailedError):
        start(place, totals(place, 3), "job", promotion, "rewind", parallelism=2)
    feed_part(place, 4)
    place.run(totals(place, 3))
    assert written(place.path / "out") == Counter(new)
    after = directory(place).load()
    assert after is not None and after.adoption is None and after.fork is None
    last = after.timelines[-1]
    assert (after.job_id, last.parent, last.epoch) == (parent.job_id, "t0", 1)
    assert last.origin == savepoint
    # The job can be taken back to before all this.
    place.restore(totals(place), fork.fork.savepoint, "rewind")
    assert written(place.path / "out") == Counter(truth)
    with pytest.raises(ConflictError, match="SINK_CHOICE_NEEDED"):
        start(place, totals(place, 3), "job", promotion)


def test_output_of_the_job_is_kept_or_left_behind_as_told(place: Workplace) -> None:
    rehearsed(place)
    truth, new = running_totals(EDITS[: 3 * SIZE]), running_totals(changed_after(2, 4, 3))
    promotion = f"promote:{place.take(FORK).manifest.id}"
    start(place, totals(place, 3), "job", promotion, "new")
    assert written(place.path / "out") == Counter(truth)
    assert written(place.path / "out.t1") == Counter(new[2 * SIZE : 3 * SIZE])
    feed_part(place, 3)
    start(place, totals(place, 3), "job", promotion, "keep")
    twice = Counter(new[2 * SIZE : 3 * SIZE])
    assert written(place.path / "out.t1") == twice + twice + Counter(new[3 * SIZE :])
    assert written(place.path / f"out.{FORK}") == twice


def test_rows_of_a_collection_are_not_read_again(place: Workplace) -> None:
    def pipeline(flow: hf.Flow) -> None:
        rows = hf.sources.Collection(EDITS[: 4 * SIZE], SCHEMA, rows_per_epoch=SIZE)
        balances = flow.key_by(flow.source("rows", rows), "user").process("sum", RunningTotal())
        flow.sink("out", balances, hf.sinks.Files(place.path / "out", "json"))

    place.run(pipeline, max_epochs=2)
    done = len(place.epochs())
    start(place, pipeline, FORK, f"fork:{place.take().manifest.id}")
    truth = running_totals(EDITS[: 4 * SIZE])
    assert written(place.path / f"out.{FORK}") == Counter(truth[done * SIZE :])
    promotion = f"promote:{place.take(FORK).manifest.id}"
    start(place, pipeline, "job", promotion)
    assert written(place.path / "out") == Counter(truth)
