"""Which savepoint and which timeline came from which."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.timelines import Timeline
from holdfast.cli.main import main
from holdfast.control.registry import Registry
from holdfast.savepoint.lineage import (
    DEEPEST,
    JobTree,
    SavepointNode,
    TimelineNode,
    job_trees,
)
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.storage.files import write_json

START = datetime(2026, 11, 17, 8, tzinfo=UTC)
T0 = Timeline()


def began(hour: int) -> str:
    return f"2026-11-17T{hour:02}:00:00Z"


def job(
    *timelines: Timeline, name: str = "wiki", at: str | None = None, job_id: str = "a1"
) -> JobIdentity:
    timelines = timelines or (T0,)
    return JobIdentity(
        job_id=job_id,
        name=name,
        parallelism=2,
        key_groups=64,
        timeline=at or timelines[-1].name,
        timelines=timelines,
    )


def saved(
    id_: str, epoch: int, identity: JobIdentity | None = None, *, label: str = ""
) -> Manifest:
    return Manifest(
        id=id_,
        kind="native",
        created=START + timedelta(minutes=epoch),
        epoch=epoch,
        identity=identity or job(),
        sources={},
        keys={"sum": 12, "max": 30},
        label=label,
        files=(SavedFile(path="data", size=5, sha256="0" * 64),),
    )


def outline(nodes: Sequence[TimelineNode]) -> list[Any]:
    """Names alone: a timeline is [name, savepoints, timelines], a savepoint {id: timelines}."""
    return [
        [
            node.name,
            *({each.id: outline(each.timelines)} for each in node.savepoints),
            *outline(node.timelines),
        ]
        for node in nodes
    ]


def only(trees: tuple[JobTree, ...]) -> JobTree:
    (tree,) = trees
    return tree


def test_nothing() -> None:
    assert job_trees([]) == ()


def test_savepoints_of_a_timeline_stand_by_epoch() -> None:
    tree = only(job_trees([saved("s9", 9), saved("s2", 2, label="monday")]))
    assert tree.timeline is None
    assert outline(tree.timelines) == [["t0", {"s2": []}, {"s9": []}]]
    assert tree.timelines[0].savepoints[0] == SavepointNode(
        id="s2",
        label="monday",
        epoch=2,
        keys=42,
        bytes=5,
        created=START + timedelta(minutes=2),
    )


def test_starts_from_savepoints_and_from_checkpoints() -> None:
    t1 = Timeline(name="t1", parent="t0", epoch=2, origin="s2", sinks="rewind", began=began(9))
    t2 = Timeline(name="t2", parent="t1", epoch=5, origin="checkpoint:5", began=began(10))
    t3 = Timeline(name="t3", parent="t0", epoch=2, origin="s2", sinks="new", began=began(11))
    now = job(T0, t1, t2, t3)
    manifests = [saved("s2", 2), saved("s4", 4, job(T0, t1)), saved("s8", 8, job(T0, t1, t2))]
    tree = only(job_trees(manifests, [now]))
    assert tree.timeline == "t3"
    assert outline(tree.timelines) == [
        ["t0", {"s2": [["t1", {"s4": []}, ["t2", {"s8": []}]], ["t3"]]}]
    ]
    first, second = tree.timelines[0].savepoints[0].timelines
    assert first == TimelineNode(
        name="t1",
        job_id="a1",
        parent="t0",
        epoch=2,
        origin="s2",
        sinks="rewind",
        began=began(9),
        savepoints=first.savepoints,
        timelines=first.timelines,
    )
    assert (first.current, second.current) == (False, True)
    assert not first.timelines[0].origin_gone
    # In whatever order they are read.
    assert job_trees(reversed(manifests), [now]) == (tree,)
    # Without the job itself, what no savepoint knows of is not known.
    assert outline(only(job_trees(manifests)).timelines) == [
        ["t0", {"s2": [["t1", {"s4": []}, ["t2", {"s8": []}]]]}]
    ]


def test_a_start_from_a_savepoint_that_is_gone() -> None:
    t1 = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(9))
    tree = only(job_trees([saved("s4", 4, job(T0, t1))], [job(T0, t1)]))
    assert outline(tree.timelines) == [["t0", ["t1", {"s4": []}]]]
    assert tree.timelines[0].timelines[0].origin_gone
    assert tree.timelines[0].timelines[0].origin == "s2"


def test_a_start_from_a_savepoint_of_another_job() -> None:
    """A fork begins at its parent's savepoint; a promotion takes the parent to its fork's."""
    fork = job(Timeline(origin="s2", began=began(9)), name="v2")
    v2, wiki = job_trees([saved("s2", 2)], [fork, job()])
    (begun,) = v2.timelines
    assert (begun.origin, begun.origin_job, begun.origin_gone) == ("s2", "wiki", False)
    assert wiki.timelines[0].origin_job is None


def test_a_savepoint_of_a_timeline_that_was_left() -> None:
    """The job is in t1, and a savepoint of t0 with a later epoch is still there."""
    t1 = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(9))
    tree = only(job_trees([saved("s2", 2), saved("s7", 7)], [job(T0, t1)]))
    assert outline(tree.timelines) == [["t0", {"s2": [["t1"]]}, {"s7": []}]]


def test_both_places_count_on_after_a_savepoint_was_carried() -> None:
    here = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(9))
    there = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(10))
    tree = only(
        job_trees(
            [saved("s2", 2), saved("s5", 5, job(T0, there)), saved("s4", 4, job(T0, here))],
            [job(T0, there)],
        )
    )
    assert outline(tree.timelines) == [["t0", {"s2": [["t1", {"s4": []}], ["t1", {"s5": []}]]}]]
    assert [each.current for each in tree.timelines[0].savepoints[0].timelines] == [False, True]


def test_a_job_that_was_begun_anew_has_another_beginning() -> None:
    """And when it is then taken to a savepoint of the older one, it hangs there."""
    t1 = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(9))
    now = job(T0, t1, job_id="b2")
    tree = only(job_trees([saved("s2", 2), saved("s3", 3, job(job_id="b2"))], [now]))
    assert [(each.name, each.job_id) for each in tree.timelines] == [("t0", "a1"), ("t0", "b2")]
    assert outline(tree.timelines) == [["t0", {"s2": [["t1"]]}], ["t0", {"s3": []}]]


def test_an_attempt_without_checkpoints_has_a_timeline_of_its_own() -> None:
    tree = only(job_trees([saved("s2", 2, job(at="a3"))]))
    assert outline(tree.timelines) == [["a3", {"s2": []}], ["t0"]]


def test_jobs_are_apart() -> None:
    other = Timeline(name="t1", parent="t0", epoch=2, origin="s2", began=began(9))
    trees = job_trees(
        [saved("s2", 2), saved("s4", 4, job(T0, other, name="other"))], [job(name="third")]
    )
    assert [(tree.job, tree.timeline) for tree in trees] == [
        ("other", None),
        ("third", "t0"),
        ("wiki", None),
    ]
    # A savepoint of another job is not one of this job.
    assert outline(trees[0].timelines) == [["t0", ["t1", {"s4": []}]]]
    assert trees[0].timelines[0].timelines[0].origin_job == "wiki"


@pytest.mark.parametrize(
    "timelines",
    [
        [Timeline(name="t1", parent="t1", epoch=1)],
        [Timeline(name="t1", parent="t2"), Timeline(name="t2", parent="t1")],
        [Timeline(name="t1", parent="t0", epoch=1, origin="s2")],  # its own savepoint
        [Timeline(name="t1", parent="t9", epoch=1, origin="checkpoint:1")],
        [
            Timeline(name="t1", parent="t0", origin="s2"),
            Timeline(name="t2", parent="t1"),
            Timeline(name="t3", parent="t2"),
        ],
    ],
)
def test_circles_and_gaps_end_somewhere(timelines: list[Timeline]) -> None:
    """holdfast writes none, but a manifest may come from anywhere. Each is shown once."""
    tree = only(job_trees([saved("s2", 2, job(*timelines))]))
    text = json.dumps(outline(tree.timelines))
    for each in timelines:
        assert text.count(f'"{each.name}"') == 1
    assert text.count("s2") == 1


def test_a_long_chain_goes_on_at_the_margin() -> None:
    """As of a job that is rescaled every day: stop with a savepoint, go on from it."""
    timelines, manifests = [T0], [saved("s0", 0)]
    for number in range(1, 3 * DEEPEST):
        timelines.append(
            Timeline(
                name=f"t{number}",
                parent=f"t{number - 1}",
                epoch=number - 1,
                origin=f"s{number - 1}",
                began=(START + timedelta(days=number)).isoformat(),
            )
        )
        manifests.append(saved(f"s{number}", number, job(*timelines)))
    tree = only(job_trees(manifests, [job(*timelines)]))
    assert [each.name for each in tree.timelines] == ["t0", f"t{DEEPEST}", f"t{2 * DEEPEST}"]
    for number, root in enumerate(tree.timelines):
        at = root
        for step in range(1, DEEPEST):
            (at,) = at.savepoints[0].timelines
            assert at.name == f"t{number * DEEPEST + step}"
        assert at.savepoints[0].timelines == ()
    assert tree.timelines[1].origin == f"s{DEEPEST - 1}"


def test_thousands_of_timelines_do_not_take_long() -> None:
    timelines = [T0] + [
        Timeline(name=f"t{number}", parent=f"t{number - 1}", epoch=number, began=began(1))
        for number in range(1, 5000)
    ]
    tree = only(job_trees([], [job(*timelines)]))
    assert len(tree.timelines) == -(-5000 // DEEPEST)


# -- the command line ---------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def keep(home: Path, manifest: Manifest) -> None:
    path = home / "savepoints" / manifest.identity.name / manifest.id
    path.mkdir(parents=True)
    write_json(path / MANIFEST, manifest.to_dict())


def run_job(home: Path, identity: JobIdentity) -> str:
    """Returns the id that the registry has given it."""
    directory = JobDirectory(home / "jobs", identity.name)
    directory.path.mkdir(parents=True)
    directory.save(identity)
    with Registry(f"sqlite:///{home}/registry.db") as registry:
        registry.ensure_schema()
        return registry.register_job(identity.name, {"directory": str(directory.path)}).id


def test_the_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert main(["savepoint", "tree", *arguments]) == 0
        return capsys.readouterr().out

    home.mkdir()
    assert "There are no savepoints;" in run()
    assert run("--json") == "[]\n"
    t1 = Timeline(name="t1", parent="t0", epoch=2, origin="s2", sinks="rewind", began=began(9))
    t2 = Timeline(name="t2", parent="t1", epoch=5, origin="checkpoint:5", began=began(10))
    t3 = Timeline(name="t3", parent="t2", epoch=6, origin="s6", began=began(11))
    id_ = run_job(home, job(T0, t1, t2, t3))
    run_job(home, job(name="idle"))
    keep(home, saved("s2", 2, label="[b]mon\x1b[31mday"))
    keep(home, saved("x1", 1, job(name="gone")))
    expected = [
        "job wiki, now in timeline t3",
        "└── timeline t0",
        "    └── savepoint s2 ([b]monday), epoch 2, 42 keys, 5 B, taken 2026-11-17 08:02:00Z",
        "        └── timeline t1, after epoch 2 of t0, output beyond it: rewind, "
        "began 2026-11-17 09:00:00Z",
        "            └── timeline t2, from checkpoint:5, after epoch 5 of t1, "
        "output beyond it: keep, began 2026-11-17 10:00:00Z",
        "                └── timeline t3, from savepoint s6 (not here), after epoch 6 of t2, "
        "output beyond it: keep, began 2026-11-17 11:00:00Z, the job is here",
    ]
    lines = run("wiki").splitlines()
    assert [line.rstrip() for line in lines] == expected
    assert run(id_).splitlines() == lines
    everything = run()
    assert everything.index("job gone") < everything.index("job wiki")
    assert "job idle" not in everything
    assert "job idle, now in timeline t0" in run("idle")
    assert "There are no savepoints of job nobody;" in run("nobody")
    (tree,) = json.loads(run("wiki", "--json"))
    assert (tree["job"], tree["timeline"]) == ("wiki", "t3")
    savepoint = tree["timelines"][0]["savepoints"][0]
    assert (savepoint["id"], savepoint["created"]) == ("s2", "2026-11-17T08:02:00Z")
    assert savepoint["timelines"][0]["timelines"][0]["origin"] == "checkpoint:5"


def test_what_cannot_be_read_is_told_and_the_rest_is_shown(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(home, saved("s2", 2))
    keep(home, saved("s3", 3))
    (home / "savepoints" / "wiki" / "s3" / MANIFEST).write_text("{}")
    run_job(home, job(name="broken"))
    (home / "jobs" / "broken" / "job.json").write_text("{")
    assert main(["savepoint", "tree"]) == 0
    captured = capsys.readouterr()
    assert "savepoint s2" in captured.out
    assert "SAVEPOINT_MANIFEST_DAMAGED: " in captured.err
    assert "UNREADABLE_FILE: " in captured.err
