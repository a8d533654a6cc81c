"""Forks without Spark: whose they are, where they write, what is compared and taken over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.checkpoint.forking import ForkPoint, adopt, output_suffixes
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.timelines import Timeline, lineage
from holdfast.control.fork_plans import (
    adoption_of,
    check_rehearsable,
    forked,
    promoted,
    require_fork_of,
)
from holdfast.control.forks import require_free
from holdfast.control.launch import Launch
from holdfast.control.output_diff import OutputDiff, Written, common_epoch, diff
from holdfast.control.registry import Registry
from holdfast.control.restore import StartPoint
from holdfast.errors import ConflictError, JobDefinitionError, NotFoundError
from holdfast.faults import armed
from holdfast.sinks.base import Delivery, Sink
from unit.test_file_sink_log import opened, visible_rows, write

PARENT = JobIdentity(
    job_id="p",
    name="wiki",
    parallelism=2,
    key_groups=64,
    timeline="t1",
    timelines=(Timeline(), Timeline(name="t1", parent="t0", epoch=3, sinks="new")),
    output_suffix=".t1",
    outputs={"out": {"directory": "/data/out", "format": "jsonl"}},
)


def at(identity: JobIdentity, batch: int, origin: str) -> StartPoint:
    return StartPoint(origin=origin, checkpoint=Path("c"), batch=batch, identity=identity)


FORK = forked(at(PARENT, 6, "sp-1"), "v2", began="now")


def test_a_fork_is_a_job_of_its_own_that_knows_its_origin() -> None:
    assert FORK.job_id != PARENT.job_id
    assert FORK.fork == ForkPoint(
        job="wiki", job_id="p", savepoint="sp-1", timeline="t1", epoch=6
    )
    assert FORK.output_suffix == ".v2"
    assert (FORK.timeline, [each.origin for each in FORK.timelines]) == ("t0", ["sp-1"])
    assert lineage(FORK.timelines, "t0") == {"t0": None}
    pending = replace(FORK, adoption=adoption_of(FORK, FORK.fork, 9))
    for identity in (PARENT, FORK, pending):
        stored = json.loads(json.dumps(identity.to_dict()))
        assert JobIdentity.from_dict(stored) == identity
    assert not {"fork", "adoption", "outputs"} & set(replace(PARENT, outputs={}).to_dict())


def test_a_fork_that_begins_anew_still_writes_elsewhere(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path, "v2")
    directory.logs.mkdir(parents=True)
    directory.save(FORK)
    begun = directory.create(2, 64, "heap")
    assert (begun.output_suffix, begun.fork, begun.job_id) == (".v2", FORK.fork, FORK.job_id)


def test_a_promoted_job_leaves_its_timeline_where_the_fork_did() -> None:
    becomes = promoted(at(FORK, 9, "sp-2"), PARENT, choice="rewind", began="now")
    assert (becomes.name, becomes.job_id, becomes.fork) == ("wiki", "p", None)
    assert becomes.timelines[-1] == Timeline(
        name="t2", parent="t1", epoch=6, origin="sp-2", sinks="rewind", began="now"
    )
    # What the sinks keep: not what came after epoch 6, although the state is of epoch 9.
    assert lineage(becomes.timelines, "t2") == {"t2": None, "t1": 6, "t0": 3}
    assert (becomes.output_suffix, becomes.rewind_pending) == (".t1", True)
    assert becomes.adoption is not None
    assert (becomes.adoption.after, becomes.adoption.kept) == (6, {"t0": 9})
    assert becomes.adoption.directories == {"out": {"t0": "/data/out.v2"}}
    apart = promoted(at(FORK, 9, "sp-2"), PARENT, choice="new", began="now")
    assert (apart.output_suffix, apart.rewind_pending) == (".t2", False)


def test_what_is_not_a_fork_of_the_job_is_refused() -> None:
    other = replace(PARENT, job_id="q")
    for identity, parent in ((PARENT, PARENT), (FORK, other)):
        with pytest.raises(ConflictError, match="NOT_A_FORK"):
            require_fork_of(identity, parent)
    back = Timeline(name="t2", parent="t1", epoch=5)
    gone = replace(PARENT, timeline="t2", timelines=(*PARENT.timelines, back))
    with pytest.raises(ConflictError, match="FORK_POINT_LEFT"):
        require_fork_of(FORK, gone)
    assert require_fork_of(FORK, PARENT).epoch == 6
    assert common_epoch(PARENT, FORK) == common_epoch(FORK, PARENT) == 6
    assert common_epoch(FORK, forked(at(PARENT, 6, "sp-1"), "v3", began="")) == 6
    with pytest.raises(ConflictError, match="NOT_A_FORK"):
        common_epoch(FORK, other)


def test_directories_of_timelines() -> None:
    timelines = [
        Timeline(),
        Timeline(name="t1", parent="t0", epoch=1),
        Timeline(name="t2", parent="t1", epoch=2, sinks="new"),
        Timeline(name="t3", parent="t2", epoch=3, sinks="rewind"),
    ]
    assert output_suffixes(timelines, ".v2") == {
        "t0": ".v2",
        "t1": ".v2",
        "t2": ".v2.t2",
        "t3": ".v2.t2",
    }


def test_output_of_a_fork_is_taken_over_once(tmp_path: Path) -> None:
    theirs = opened(tmp_path / "out.v2", job_id="f", job_name="v2", timeline="t0")
    for epoch in range(5, 9):
        write(theirs, epoch, [f"v2-{epoch}a"], [f"v2-{epoch}b"] if epoch == 6 else [])
    mine = opened(tmp_path / "out", timeline="t0")
    write(mine, 5, ["old-5"])
    fork = replace(FORK, job_id="f", outputs={"out": {"directory": f"{tmp_path}/out"} | JSON})
    assert FORK.fork is not None
    adoption = adoption_of(fork, replace(FORK.fork, epoch=4), 7)
    kept = {"t1": None, "t0": 4}
    log = opened(tmp_path / "out", timeline="t1")
    with armed("sink.mid_adoption=raise@2"), pytest.raises(RuntimeError):
        adopt("out", log, adoption, kept)
    for _ in range(2):
        adopt("out", opened(tmp_path / "out", timeline="t1"), adoption, kept)
    rows = ["v2-5a", "v2-6a", "v2-6b", "v2-7a"]
    assert visible_rows(tmp_path / "out") == ["old-5", *rows]
    assert visible_rows(tmp_path / "out.v2") == [*rows, "v2-8a"]


JSON = {"format": "jsonl"}


@dataclass(frozen=True)
class Database(Sink):
    """It writes to the outside, and always to the same place."""

    delivery: ClassVar[Delivery] = Delivery.TRANSACTIONAL


def test_sinks_of_a_fork_must_not_be_its_parents() -> None:
    job = hf.Job("v2")
    harmless = {"a": hf.sinks.Files("out"), "b": hf.sinks.Console(), "c": hf.sinks.Discard()}
    check_rehearsable(job, harmless)
    with pytest.raises(JobDefinitionError, match=r"FORK_SINK_SHARED.*'d'"):
        check_rehearsable(job, {**harmless, "d": Database()})
    job.checkpoint = hf.CheckpointConfig(mode="none")
    with pytest.raises(JobDefinitionError, match="FORK_WITHOUT_CHECKPOINTS"):
        check_rehearsable(job, harmless)


def test_a_start_remembers_the_name_and_what_is_still_to_be_done(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text('import holdfast as hf\njob = hf.Job("wiki")\n')
    launch = Launch(app=app, name="v2", start_from="fork:sp-1", allow_dropped=True)
    job = launch.load()
    assert (job.name, job.declared_name) == ("v2", "wiki")
    assert launch.arguments()[1:] == [
        *("--allow-non-restored-state", "--name", "v2", "--from", "fork:sp-1")
    ]
    directory = JobDirectory(tmp_path, "v2")
    spec = {"directory": str(directory.path), "launch": launch.to_dict()}
    assert Launch.from_spec("v2", spec) == launch
    directory.logs.mkdir(parents=True)
    directory.save(FORK)
    assert Launch.from_spec("v2", spec) == Launch(app=app, name="v2")
    promoting = replace(launch, name=None, start_from="promote:sp-2", sink_choice="rewind")
    spec = {"directory": str(directory.path), "launch": promoting.to_dict()}
    assert Launch.from_spec("v2", spec) == promoting
    directory.save(replace(FORK, timelines=(*FORK.timelines, Timeline(origin="sp-2"))))
    assert Launch.from_spec("v2", spec) == Launch(app=app)
    older = replace(promoting, start_from="checkpoint:3")
    assert older.to_dict()["start_from"] is None


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with Registry(f"sqlite:///{tmp_path / 'registry.db'}") as registry:
        registry.ensure_schema()
        directory = JobDirectory(tmp_path, "v2")
        require_free(registry, directory)
        spec: dict[str, Any] = {"directory": str(directory.path)}
        registry.register_job("v2", spec)
        with pytest.raises(ConflictError, match="FORK_NAME_TAKEN"):
            require_free(registry, directory)
        # One that was cut short before it had state may be repeated.
        registry.register_job("v2", spec | {"launch": {"start_from": "fork:sp-1"}})
        require_free(registry, directory)
        directory.logs.mkdir(parents=True)
        directory.save(FORK)
        with pytest.raises(ConflictError, match="FORK_NAME_TAKEN"):
            require_free(registry, directory)


# -- what the two have written ------------------------------------------------------------

Rows = Sequence[dict[str, Any]]


def side(
    path: Path, job: str, rows: Rows | None, kind: str = "jsonl", read: Sequence[str] = ()
) -> Written:
    files = []
    if rows is not None:
        file = path / f"{job} 'quoted'.{kind}"
        if kind == "jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(list(rows)), file)
        files = [file]
    return Written(
        job=job,
        timeline="t0",
        after=3,
        epoch=7,
        files={"out": files},
        formats={"out": kind},
        read={"edits": frozenset(read)},
    )


def of(
    path: Path, one: Rows | None, other: Rows | None, kinds: str = "jsonl jsonl"
) -> OutputDiff:
    first, second = kinds.split()
    return diff(side(path, "wiki", one, first), side(path, "v2", other, second))


A, B, C = {"user": "a", "n": 1}, {"user": "b", "n": 2}, {"user": "c", "n": 3}


@pytest.mark.parametrize("kinds", ["jsonl jsonl", "parquet parquet", "parquet jsonl"])
def test_rows_are_compared_as_a_multiset(tmp_path: Path, kinds: str) -> None:
    assert of(tmp_path, [A, B, A], [A, A, B], kinds).same
    found = of(tmp_path, [A, A, B], [A, C], kinds)
    (out,) = found.sinks
    assert (out.rows, out.only, out.both, found.same) == ((3, 2), (2, 1), 1, False)
    assert [(each.job, each.row) for each in out.samples] == [
        ("wiki", A),
        ("wiki", B),
        ("v2", C),
    ]


def test_columns_are_compared_by_name(tmp_path: Path) -> None:
    more = [{"n": row["n"], "bot": True, "user": row["user"]} for row in (A, B)]
    (out,) = of(tmp_path, [A, B], more).sinks
    assert (out.only, out.both, out.columns) == ((0, 0), 2, ((), ("bot",)))
    assert not out.same
    (out,) = of(tmp_path, [A], [{"other": 1}]).sinks
    assert (out.only, out.both) == ((1, 1), 0)
    # Numbers are numbers, whatever their type; text is not a number.
    halves = [{"user": "a", "n": 1.0}, {"user": "b", "n": 2.5}]
    assert of(tmp_path, [A, B], halves, "parquet parquet").sinks[0].only == (1, 1)
    texts = [{"user": "a", "n": "1"}, {"user": "b", "n": "two"}]
    assert of(tmp_path, [A, B], texts, "parquet parquet").sinks[0].only == (1, 1)


def test_nothing_written_is_compared_too(tmp_path: Path) -> None:
    assert of(tmp_path, None, None).same
    (out,) = of(tmp_path, [A, B], None).sinks
    assert (out.rows, out.only, out.columns) == ((2, 0), (2, 0), ((), ()))
    assert [each.row for each in out.samples] == [A, B]
    (out,) = of(tmp_path, None, [A]).sinks
    assert (out.rows, out.only) == ((0, 1), (0, 1))


def test_whether_the_same_was_read_is_said(tmp_path: Path) -> None:
    first, second = side(tmp_path, "wiki", [A], read="ab"), side(tmp_path, "v2", [A], read="b")
    found = diff(first, second)
    assert found.same and not found.same_input
    assert [(each.uid, each.only) for each in found.inputs] == [("edits", (1, 0))]
    with pytest.raises(NotFoundError, match="they have: out"):
        diff(first, second, sink="other")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    first, second = side(tmp_path, "wiki", [A]), side(tmp_path, "v2", [A])
    Path(second.files["out"][0]).unlink()
    with pytest.raises(ConflictError, match="OUTPUT_CHANGED"):
        diff(first, second)
