"""Drills without a JVM: which there are, what they arm, and how they are judged."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.cli.main import main
from holdfast.demo.proof import Check, Proof
from holdfast.drill import crash_points
from holdfast.drill.catalogue import DRILLS, AnyDrill
from holdfast.drill.crash_points import CrashPoint, build_library
from holdfast.drill.drills import EPOCH_DRILLS, Drill
from holdfast.drill.moments import Moment
from holdfast.drill.result import run_drill
from holdfast.drill.verdict import Seen, SeenAttempt, objections
from holdfast.drill.visible import half_visible
from holdfast.drill.waiting import wait
from holdfast.errors import EnvironmentProblem, RunFailedError
from holdfast.failure import FailureClass
from holdfast.faults import fired_faults, parse_faults
from holdfast.storage.file_sink_log import PRIVATE_DIRECTORY

EQUAL = Proof(users=1, balances=(), checks=(Check(what="rows", expected=1, found=1),))
WRONG = Proof(users=1, balances=(), checks=(Check(what="rows", expected=1, found=2),))


def named(name: str) -> Drill:
    [found] = [drill for drill in EPOCH_DRILLS if drill.name == name]
    return found


def passed(drill: Drill) -> Seen:
    broken = [
        SeenAttempt(state="FAILED", error=ends.error, failure_class=ends.failure_class)
        for ends in [drill.ends]
        if ends is not None
    ]
    finished = SeenAttempt(state="FINISHED", error=None, failure_class=None)
    attempts = (*broken, finished)
    return Seen(fired=(drill.injection.point,), attempts=attempts, proof=EQUAL)


# -- which drills there are -----------------------------------------------------------------


def test_names_are_unique_and_tell_the_moment() -> None:
    assert max(Counter(drill.name for drill in DRILLS).values()) == 1
    for drill in DRILLS:
        assert drill.name.startswith("worker-") or drill.name.endswith(drill.moment.lower())
        assert drill.ends is None or drill.ends.failure_class in set(FailureClass)


def test_a_driver_is_killed_at_every_moment() -> None:
    kills = [drill.moment for drill in DRILLS if drill.name.startswith("driver-kill-")]
    assert kills == list(Moment)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_every_injection_can_be_armed_and_strikes_once(drill: AnyDrill, tmp_path: Path) -> None:
    if isinstance(drill.injection, CrashPoint):
        variables = drill.injection.variables(tmp_path / "x", tmp_path / "gate")
        assert variables["LD_PRELOAD"] == str(tmp_path / "x")
        *_, action, pattern = variables["CRASH_POINT"].split(" ")
        assert pattern == drill.injection.pattern
    else:
        variables = drill.injection.variables(tmp_path / "gate")
        [fault] = parse_faults(variables["HOLDFAST_FAULTS"])
        assert fault.once
        action = fault.action
    # Whoever acts from outside needs a process that waits; so does one that hangs.
    outside = drill.blow if isinstance(drill, Drill) else drill.victim != "nobody"
    hangs = drill.ends is not None and drill.ends.error == "EPOCH_TIMEOUT"
    assert (action == "gate") == (bool(outside) or hangs)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["drill"] for each in listed] == [drill.name for drill in DRILLS]
    assert main(["drill", "no-such-drill"]) == 2
    assert "UNKNOWN_DRILL" in capsys.readouterr().err


# -- the verdict ----------------------------------------------------------------------------

DRILL = named("driver-kill-m3")


def test_what_is_as_expected_passes() -> None:
    seen = passed(DRILL)
    assert objections(DRILL, seen) == ()
    assert seen.exact


def test_a_lost_executor_is_no_end_of_an_attempt() -> None:
    drill = named("executor-kill-m2")
    assert objections(drill, passed(drill)) == ()
    [objection] = objections(drill, replace(passed(drill), attempts=passed(DRILL).attempts))
    assert "expected was FINISHED" in objection
    told = replace(passed(drill), complaints=("the history has no executor_lost",))
    assert objections(drill, told) == ("the history has no executor_lost",)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(passed(DRILL), fired=()), "did not fire, so nothing is proven"),
        (replace(passed(DRILL), fired=("epoch.end",)), "faults fired at epoch.end"),
        (replace(passed(DRILL), fired=passed(DRILL).fired * 2), "expected was one at"),
        (replace(passed(DRILL), attempts=passed(DRILL).attempts[1:]), "attempts were FINISHED"),
        (
            replace(passed(DRILL), attempts=passed(named("driver-pause-m2")).attempts),
            "DRIVER_HUNG (hung), FINISHED; expected was DRIVER_DIED (lost_driver), FINISHED",
        ),
        (replace(passed(DRILL), trouble="waited 180 s"), "waited 180 s"),
        (replace(passed(DRILL), left_over=(7, 8)), "processes 7, 8 of the broken attempt"),
        (replace(passed(DRILL), zombie_refused=False), "ended as if all were well"),
        (replace(passed(DRILL), half_visible=("x is half",)), "x is half"),
        (replace(passed(DRILL), proof=WRONG), "rows: 2, expected 1"),
        (replace(passed(DRILL), proof=None), "there is no output"),
    ],
)
def test_everything_else_is_an_objection(seen: Seen, words: str) -> None:
    [objection] = objections(DRILL, seen)
    assert words in objection


def test_an_operation_may_have_other_attempts_but_only_one_fails() -> None:
    [drill] = [each for each in DRILLS if each.name == "driver-kill-m9"]
    suspended = SeenAttempt(state="SUSPENDED", error=None, failure_class=None)
    died, finished = passed(DRILL).attempts
    point = (drill.injection.point,)
    seen = Seen(fired=point, attempts=(suspended, died, finished), proof=EQUAL)
    assert objections(drill, seen) == ()
    for wrong in ((suspended, finished), (died, suspended), (died, died, finished), ()):
        [objection] = objections(drill, replace(seen, attempts=wrong))
        assert "to fail expected was DRIVER_DIED (lost_driver)" in objection
    assert objections(drill, replace(seen, complaints=("a half savepoint",))) == (
        "a half savepoint",
    )


def test_only_equal_and_whole_output_is_exact() -> None:
    assert not replace(passed(DRILL), proof=WRONG).exact
    assert not replace(passed(DRILL), proof=None).exact
    assert not replace(passed(DRILL), half_visible=("x",)).exact


def test_what_the_machine_lacks_is_no_failure_of_the_job(tmp_path: Path) -> None:
    def without_compiler(drill: AnyDrill, directory: Path) -> Seen:
        raise EnvironmentProblem("NO_C_COMPILER", "there is none.", fix="install one.")

    def stalled(drill: AnyDrill, directory: Path) -> Seen:
        raise RunFailedError("DRILL_STALLED", "waited.")

    not_run = run_drill(DRILL, tmp_path, carry_out=without_compiler)
    assert (not_run.outcome, not_run.to_dict()["exact"]) == ("not run", None)
    assert "Fix: install one." in not_run.reasons[0]
    assert run_drill(DRILL, tmp_path, carry_out=stalled).outcome == "FAILED"
    assert run_drill(DRILL, tmp_path, carry_out=lambda *_: passed(DRILL)).outcome == "passed"


def publish(directory: Path, epoch: int, *edits: int) -> None:
    name = f"part-t0-{epoch:09d}-00000-0123abcd.parquet"
    pq.write_table(pa.table({"edit": list(edits)}), directory / name)


def test_what_a_reader_must_not_see(tmp_path: Path) -> None:
    assert half_visible(tmp_path / "nothing yet") == ()
    publish(tmp_path, 0, 1, 2)
    (tmp_path / PRIVATE_DIRECTORY).mkdir()
    assert half_visible(tmp_path) == ()
    (tmp_path / ".part.tmp").touch()
    assert "was not published" in half_visible(tmp_path)[0]
    publish(tmp_path, 1, 2, 3)
    assert half_visible(tmp_path)[1] == "1 rows are visible twice"


def test_waiting_ends_with_an_error_that_says_what_for() -> None:
    wait(lambda: True, "nothing")
    with pytest.raises(RunFailedError, match="waited 0 s for the end of the world"):
        wait(lambda: False, "the end of the world", seconds=0)


# -- crash points ---------------------------------------------------------------------------


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"))


WORK = """
import os, sys
for number in range(4):
    with open(f"{number}.tmp", "w") as file:
        file.write("x")
    try:
        os.rename(f"{number}.tmp", f"offsets/{number}")
    except OSError as error:
        print(error.errno)
print("end")
"""


def work(point: CrashPoint, library: Path, folder: Path) -> tuple[int, list[str]]:
    """A child that writes four files as Spark does; its exit code, and what it says."""
    (folder / "offsets").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        cwd=folder,
        env={
            **point.variables(library, folder / "gate"),
            "HOLDFAST_FAULTS_LOG": str(folder / "log"),
        },
        start_new_session=True,  # `kill` takes the process group
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "" or "OSError" in done.stderr
    return done.returncode, done.stdout.split()


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "offsets").iterdir())


@needs_compiler
def test_kill_before_the_rename_strikes_once(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="before rename", pattern="*offsets/2", action="kill")
    assert work(point, library, tmp_path) == (-signal.SIGKILL, [])
    assert there(tmp_path) == ["0", "1"]
    [fired] = fired_faults(tmp_path / "log")
    assert (fired.point, fired.action) == (point.point, "kill")
    assert work(point, library, tmp_path) == (0, ["end"])
    assert there(tmp_path) == ["0", "1", "2", "3"]
    assert len(fired_faults(tmp_path / "log")) == 1


@needs_compiler
def test_kill_after_the_nth_rename(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="after rename", pattern="*offsets/*", action="kill", nth=3)
    assert work(point, library, tmp_path)[0] == -signal.SIGKILL
    assert there(tmp_path) == ["0", "1", "2"]


@needs_compiler
def test_a_rename_that_fails(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="before rename", pattern="*offsets/2", action="eio")
    assert work(point, library, tmp_path) == (0, ["5", "end"])
    assert there(tmp_path) == ["0", "1", "3"]


@needs_compiler
def test_a_gate_holds_the_process_until_it_is_opened(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="before rename", pattern="*offsets/1", action="gate")
    (tmp_path / "offsets").mkdir()
    log, gate = tmp_path / "log", tmp_path / "gate"
    child = subprocess.Popen(
        [sys.executable, "-c", WORK],
        cwd=tmp_path,
        env={**point.variables(library, gate), "HOLDFAST_FAULTS_LOG": str(log)},
        stdout=subprocess.DEVNULL,
    )
    wait(lambda: bool(fired_faults(log)), "the gate")
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    assert there(tmp_path) == ["0"]
    gate.touch()
    assert child.wait(60) == 0
    assert there(tmp_path) == ["0", "1", "2", "3"]


@needs_compiler
def test_a_file_that_cannot_be_created(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="before open", pattern="*1.tmp", action="enospc")
    code, _ = work(point, library, tmp_path)
    assert code == 1  # Python's open raises, nobody catches it
    assert there(tmp_path) == ["0"]
    assert [fault.action for fault in fired_faults(tmp_path / "log")] == ["enospc"]


@needs_compiler
def test_other_paths_pass_through(library: Path, tmp_path: Path) -> None:
    point = CrashPoint(at="before rename", pattern="*commits/2", action="kill")
    assert work(point, library, tmp_path) == (0, ["end"])
    assert fired_faults(tmp_path / "log") == []


def test_without_a_compiler_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem) as caught:
        build_library(tmp_path)
    assert caught.value.name == "NO_C_COMPILER"
    assert "apt install gcc" in caught.value.fix


@needs_compiler
def test_what_the_compiler_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int x = ;")
    monkeypatch.setattr(crash_points, "_SOURCE", broken)
    with pytest.raises(EnvironmentProblem, match=r"broken\.c"):
        build_library(tmp_path)
