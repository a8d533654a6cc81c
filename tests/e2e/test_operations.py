"""Operations on a job that runs: savepoint, rescale, upgrade, rollback; exact after all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.test_supervision import JOB, Supervised
from holdfast.drill.waiting import wait
from holdfast.faults import EXIT_CODE

COUNTING = """
from holdfast.demo.job import RunningBalance as Before

class RunningBalance(Before):
    largest = hf.ValueState("bigint", default=0)

    def process(self, edit, ctx):
        self.largest.value = max(self.largest.value, edit.diff)
        return super().process(edit, ctx)

"""


def with_one_more_variable(text: str) -> str:
    imported = "from holdfast.demo.job import RunningBalance, pipeline\n"
    assert imported in text
    return text.replace(imported, COUNTING)


@contextmanager
def feeding(job: Supervised) -> Iterator[None]:
    """Edits keep coming: new code is judged by what it does with them."""
    over = threading.Event()

    def feed() -> None:
        while not over.wait(2):
            job.edits.send(1)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cut_short(job: Supervised, point: str, *command: str) -> None:
    """The command dies there; the job is left stopped, and the command can be repeated."""
    done = job.home.call(*command, HOLDFAST_FAULTS=f"{point}=exit")
    assert done.returncode == EXIT_CODE, done.stderr
    assert job.home.json("show", JOB)["state"] == "SUSPENDED"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_life_of_a_job(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    job.write(checkpoint=', savepoint_every="2 s", savepoints_kept=2')
    job.edits.send(4)
    with job.started("run", str(job.app)):
        job.wait_for_progress()
        taken = job.call("savepoint", "take", JOB, "--label", "first")
        assert taken["steps"] == {"balances": taken["keys"]} and taken["keys"] > 0
        assert taken["seconds"] > 0
        assert list(taken["sources"]) == ["edits"]
        job.wait_for_progress()  # it was not stopped
        cut_short(job, "operation.saved", "rescale", JOB, "3")
        rescaled = job.call("rescale", JOB, "3")
        assert (rescaled["parallelism"], rescaled["timeline"]) == (3, "t1")
        job.wait_for_progress()
        assert job.home.json("show", JOB)["state"] == "RUNNING"

        broken = tmp_path / "broken.py"
        broken.write_text(
            job.app.read_text().replace("        pass\n", "        edit.nonsense\n")
        )
        with feeding(job):
            # Nobody watches the new code any more; the command, repeated, still goes back.
            left = {"HOLDFAST_FAULTS": "operation.started=exit"}
            assert job.home.call("upgrade", JOB, str(broken), **left).returncode == EXIT_CODE
            refused = job.home.call("upgrade", JOB, str(broken), "--json")
        assert refused.returncode == 1
        assert "nonsense" in refused.stdout
        job.wait_for_progress()

        better = tmp_path / "better.py"
        better.write_text(with_one_more_variable(job.app.read_text()))
        cut_short(job, "operation.saved", "upgrade", JOB, str(better))
        with feeding(job):
            upgraded = job.call("upgrade", JOB, str(better), "--healthy-after", "1")
        assert upgraded["rolled_back"] == ""
        job.wait_for_progress()

        undecided = job.home.call("rollback", JOB, "first")
        assert undecided.returncode == 4
        assert "SINK_CHOICE_NEEDED" in undecided.stderr
        cut_short(job, "operation.suspended", "rollback", JOB, "first", "--sink", "rewind")
        back = job.call("rollback", JOB, "first", "--sink", "rewind")
        assert back["savepoint"] == taken["id"]
        # What came after the savepoint is read once more, by the new code.
        wait(lambda: job.rows_out() == job.edits.sent, "all edits")
        ended = job.call("stop", JOB, "--savepoint", "--label", "last")
        assert ended["state"] == "FINISHED"
    assert job.is_exact()
    savepoints = job.home.json("savepoint", "list", JOB)
    labels = [each["label"] for each in savepoints]
    versions = [each["code"] for each in job.home.json("attempts", JOB)]
    assert versions[0] == taken["code"]
    assert versions[-1] == savepoints[labels.index("last")]["code"] != taken["code"]
    assert labels.index("first") < labels.index("last")
    assert 1 <= labels.count("automatic") <= 2
    for label in ("first", "last"):
        assert job.home.call("savepoint", "verify", label).returncode == 0
