"""What operations on jobs say and refuse, without Spark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.restore_plan import RestorePlan, SinkBeyond
from holdfast.checkpoint.timelines import Timeline
from holdfast.cli.main import main
from holdfast.cli.operations import conclude, epochs
from holdfast.control import operations
from holdfast.control.app import load_job
from holdfast.control.forks import prepare_fork
from holdfast.control.launch import Launch
from holdfast.control.operations import Outcome, Place, rescale, roll_back, upgrade
from holdfast.control.registry import Registry
from holdfast.control.restore import find_start
from holdfast.errors import ConflictError, NotFoundError, RunFailedError, StateMismatchError
from holdfast.savepoint.store import SavepointStore
from unit.test_savepoint_store import IDENTITY, made

T1 = Timeline(name="t1", parent="t0", epoch=3, origin="sp-1", sinks="rewind")
PLAN = RestorePlan(
    origin="sp-1",
    checkpoint=Path("c"),
    batch=3,
    partitions=2,
    identity=JobIdentity(
        job_id="a1",
        name="wiki",
        parallelism=2,
        key_groups=64,
        timeline="t1",
        timelines=(Timeline(), T1),
    ),
    sinks=(SinkBeyond(uid="out", sink="Files('out', parquet)", epochs=2, rows=1200),),
)


class Said:
    """A place whose job is known and does not run, and what was said there."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self.lines: list[str] = []
        self.app = path / "app.py"
        self.app.write_text('import holdfast as hf\njob = hf.Job("wiki", parallelism=2)\n')
        self.directory = JobDirectory(path / "jobs", "wiki")
        settings = SimpleNamespace(storage=path / "jobs", savepoints=path / "savepoints")
        self.place = Place(registry, settings, self.lines.append)
        self.started(Launch(app=self.app))

    def started(self, launch: Launch) -> None:
        spec = {"directory": str(self.directory.path), "launch": launch.to_dict()}
        self.row = self.place.registry.register_job("wiki", spec)


@pytest.fixture
def said(tmp_path: Path) -> Any:
    with Registry(f"sqlite:///{tmp_path / 'registry.db'}") as registry:
        registry.ensure_schema()
        yield Said(tmp_path, registry)


def test_a_rollback_first_says_what_it_will_remove(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = said.lines

    def starts(*_: Any, **__: Any) -> None:
        steps.append("started")

    monkeypatch.setattr(operations, "planned", lambda *_: PLAN)
    monkeypatch.setattr(operations, "_start_or_resume", starts)
    monkeypatch.setattr(operations, "outcome", lambda *_: None)
    roll_back(said.place, said.row, "monday", "rewind", timeout=1)
    assert steps == [
        "job wiki, from sp-1: goes on after epoch 3 of timeline t0, as timeline t1; output "
        "beyond it: rewind.",
        "  sink out  Files('out', parquet): 2 epochs with 1,200 rows beyond it; rewind",
        "started",
    ]


def test_a_promotion_from_a_checkpoint_is_not_said_to_be_from_a_savepoint() -> None:
    promoting = replace(PLAN, of_job="v2")
    assert promoting.sentence.startswith("from savepoint sp-1 of job v2: ")
    rehearsed = replace(promoting, origin="checkpoint:7")
    assert rehearsed.sentence.startswith("from checkpoint:7 of job v2: ")


def test_a_job_without_state_is_not_rescaled(said: Said) -> None:
    with pytest.raises(NotFoundError, match="no committed epoch yet") as refused:
        rescale(said.place, said.row, 5, timeout=1)
    assert refused.value.name == "NOTHING_TO_SAVE"
    assert "--parallelism 5" in str(refused.value.fix)


def test_a_savepoint_of_another_job_is_said_to_be_one(said: Said) -> None:
    made(said.place.savepoints.root, "sp-1", label="monday")
    other = load_job(said.app, None)
    other.name = "other"
    for origin in ("sp-1", "sp", "monday"):
        with pytest.raises(ConflictError, match="is of job 'wiki', not of 'other'") as foreign:
            find_start(other, said.directory, origin, said.place.savepoints)
        assert foreign.value.name == "SAVEPOINT_OF_ANOTHER_JOB"
    with pytest.raises(NotFoundError, match="SAVEPOINT_NOT_FOUND"):
        find_start(other, said.directory, "latest", SavepointStore(said.app.parent / "none"))


@pytest.mark.parametrize(
    ("origin", "whence"),
    [
        ("sp-1", " partitions, from savepoint sp-1, in"),
        ("checkpoint:7", " partitions, from checkpoint:7, in"),
        ("", " partitions, in"),
    ],
)
def test_what_a_job_came_from(
    capsys: pytest.CaptureFixture[str], origin: str, whence: str
) -> None:
    ended = Outcome(job="wiki", savepoint=origin, parallelism=5, timeline="t1")
    conclude(ended, as_json=False)
    assert whence in capsys.readouterr().out


@pytest.mark.parametrize("of", ["wiki", "sp-1"])
def test_a_fork_has_the_parallelism_that_the_job_was_rescaled_to(
    said: Said, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = made(said.place.savepoints.root, "sp-1")
    monkeypatch.setattr("holdfast.control.forks._take", lambda *_: savepoint)
    launch = Launch(app=said.app, name="v2")
    assert prepare_fork(said.place, of, launch).parallelism is None
    said.started(Launch(app=said.app, parallelism=5))
    assert prepare_fork(said.place, of, launch).parallelism == 5
    given = replace(launch, parallelism=3)
    assert prepare_fork(said.place, of, given).parallelism == 3


def test_a_savepoint_elsewhere_is_gone_back_to_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    with Registry(f"sqlite:///{home}/registry.db") as registry:
        registry.ensure_schema()
        registry.register_job("wiki", {"directory": str(home / "jobs" / "wiki")})
    savepoint = made(tmp_path / "elsewhere", "sp-1")
    monkeypatch.setattr(
        "holdfast.control.savepoints.take_savepoint", lambda *_, **__: savepoint
    )
    take = ("savepoint", "take", "wiki", "--home", str(home))
    assert main([*take, "--to", str(tmp_path / "elsewhere")]) == 0
    assert f"--from {savepoint.path}\n" in capsys.readouterr().out
    # Where ids are looked up, the id is enough.
    assert main(take) == 0
    assert "--from sp-1\n" in capsys.readouterr().out


class Interrupted(BaseException):
    """The command dies here."""


def test_an_upgrade_that_is_repeated_goes_back_to_the_code_before_the_first_try(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the job was started with last is by then the new code, which nobody has judged."""
    said.directory.logs.mkdir(parents=True)
    said.directory.save(IDENTITY)
    bad = tmp_path / "bad.py"
    bad.write_text(said.app.read_text())
    steps: list[tuple[str, str]] = []
    ends: list[BaseException | None] = [Interrupted(), RunFailedError("OOPS", "it failed.")]

    def start(place: Place, launch: Launch, origin: str, **_: Any) -> None:
        steps.append((launch.app.name, origin))
        said.started(launch)
        begun = Timeline(name=f"t{len(steps)}", parent="t0", epoch=1, origin=origin)
        said.directory.save(replace(IDENTITY, timelines=(Timeline(), begun)))

    def watch(*_: Any, **__: Any) -> None:
        if (ended := ends.pop(0)) is not None:
            raise ended

    for name, instead in {
        "require_fits": lambda *_: None,
        "_suspended": lambda *_, **__: made(tmp_path / "savepoints", f"sp-{len(steps)}"),
        "_start": start,
        "restart_detached": lambda launch, *_, **__: steps.append((launch.app.name, "resumed")),
        "_watch": watch,
    }.items():
        monkeypatch.setattr(operations, name, instead)

    def upgraded() -> Outcome:
        return upgrade(said.place, said.row, bad, healthy_epochs=1, timeout=1)

    with pytest.raises(Interrupted):
        upgraded()
    assert upgraded().rolled_back == "OOPS: it failed."
    assert steps == [("bad.py", "sp-0"), ("bad.py", "resumed"), ("app.py", "sp-0")]
    # That is over: the next one begins anew, also one that ends well.
    ends.append(None)
    assert upgraded().rolled_back == ""
    assert steps[3:] == [("bad.py", "sp-3")]
    assert not list(said.directory.path.glob("upgrade*"))


def test_code_that_does_not_fit_is_refused_before_the_job_is_stopped(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StateMismatchError("KEYS_CHANGED", "other keys.", fix="keep them.")

    def stopped(*_: Any, **__: Any) -> None:
        raise AssertionError("the job was stopped")

    monkeypatch.setattr(operations, "require_fits", refuse)
    monkeypatch.setattr(operations, "_suspended", stopped)
    with pytest.raises(StateMismatchError, match="KEYS_CHANGED"):
        upgrade(said.place, said.row, said.app, healthy_epochs=1, timeout=1)


@pytest.mark.parametrize("given", ["3", "3 epochs", "3epochs", " 03 ", 3])
def test_epochs_are_taken_with_and_without_the_word(given: str | int) -> None:
    assert epochs(given) == 3
    assert epochs("1 epoch") == 1


@pytest.mark.parametrize("given", ["0", "-1", "3 s", "epochs", "", "1.5"])
def test_what_is_no_number_of_epochs_is_refused(given: str) -> None:
    with pytest.raises(typer.BadParameter):
        epochs(given)
