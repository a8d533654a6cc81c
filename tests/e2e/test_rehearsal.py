"""Other code on the state of a job by the command line: forked, compared, promoted."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from e2e.test_supervision import JOB, Supervised
from holdfast.drill.waiting import wait

OWED = """
class Balance(RunningBalance):
    def process(self, edit, ctx):
        for *rest, total in super().process(edit, ctx):
            yield (*rest, -total)

"""


def rows(path: Path) -> list[tuple[str, int, int, int]]:
    query = f"SELECT user, edit, nth, total FROM read_parquet('{path}/*.parquet')"
    return duckdb.connect().execute(query).fetchall()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_new_code_is_rehearsed_and_promoted(tmp_path: Path) -> None:
    job = Supervised(tmp_path)
    new = tmp_path / "new.py"
    text = job.app.read_text()
    at = text.index("class Balance"), text.index("job = hf.Job(")
    new.write_text(text[: at[0]] + OWED + text[at[1] :])
    job.edits.send(2)
    with job.started("run", str(job.app)):
        wait(lambda: job.committed() >= 0, "the first epoch")
        done = job.home.call("fork", JOB, str(new), "--name", "v2", "--available-now")
        assert done.returncode == 0, done.stderr
        assert "sink        out: Files('balances.v2', parquet)" in done.stdout
        again = job.home.call("fork", JOB, str(new), "--name", "v2")
        assert (again.returncode, again.stderr.split(":")[0]) == (4, "FORK_NAME_TAKEN")
        job.edits.send(1)
        assert job.home.call("resume", "v2").returncode == 0
        compared = job.home.call("diff", JOB, "v2")
        assert compared.returncode == 1
        assert f"only in {JOB}" in compared.stdout.lower()
        assert "fork of job wiki" in job.home.call("show", "v2").stdout
        refused = job.home.call("promote", "v2")
        assert "SINK_CHOICE_NEEDED" in refused.stderr
        promoted = job.call("promote", "v2", "--sink", "rewind")
        assert (promoted["job"], promoted["timeline"]) == (JOB, "t1")
        job.wait_for_progress()
        wait(lambda: job.rows_out() == job.edits.sent, "all edits")
        states = {row["name"]: row["state"] for row in job.home.json("ps")}
        assert states == {JOB: "RUNNING", "v2": "FINISHED"}
        # Repeated, it finds that it is done.
        assert job.call("promote", "v2", "--sink", "rewind") == promoted
        assert job.call("stop", JOB)["state"] == "FINISHED"
    rehearsed, final = rows(tmp_path / "balances.v2"), rows(tmp_path / "balances")
    assert sorted(edit for _, edit, _, _ in final) == list(range(1, job.edits.sent + 1))
    assert rehearsed and set(rehearsed) < set(final)
