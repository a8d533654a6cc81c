"""`holdfast check APP.py --from SAVEPOINT` on real plans: what Spark accepts in silence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.control.launch import Launch
from holdfast.control.restore_check import RestoreCheck, check_restore
from holdfast.control.runner import run_job
from spark.test_state_reading import settings
from spark.workplace import Workplace

HEAD = """
import holdfast as hf
from pyspark.sql import functions as F

SCHEMA = "user string, page string, diff bigint, ts timestamp"
job = hf.Job("job", parallelism=2)

def log(flow, uid):
    return flow.source(uid, hf.sources.FileLog({log!r}, SCHEMA))
"""
STEPS = (
    HEAD
    + """
from spark.processes import PairTotal as Total

@job.pipeline
def pipeline(flow):
    first = flow.stateful("users", log(flow, "seen").dropDuplicates(["user"]))
    second = flow.stateful("pages", first.dropDuplicates(["page"]))
    flow.sink("distinct", second, hf.sinks.Discard())
    totals = flow.key_by(log(flow, "edits"), "user").process("sum", Total())
    flow.sink("out", totals, hf.sinks.Discard())
"""
)
CLASS = """
class Total(hf.KeyedProcess):
    total = hf.ValueState("struct<sum: bigint, n: bigint>")
    output = "user string, total bigint"

    def process(self, edit, ctx):
        known = self.total.value or (0, 0)
        self.total.value = (known[0] + edit.diff, known[1] + 1)
        yield edit.user, self.total.value[0]
"""
WINDOWS = (
    HEAD
    + """
@job.pipeline
def pipeline(flow):
    marked = flow.watermark(log(flow, "edits"), "ts", delay="1 h")
    windows = flow.key_by(marked, "user").window(hf.windows.Tumbling("10 min"))
    flow.sink("out", windows.aggregate("counts", n=F.count("*")), hf.sinks.Discard())
"""
)


class Changing:
    """A job with a savepoint, whose code is then changed."""

    def __init__(self, path: Path, code: str) -> None:
        self.place, self._code, self._files = Workplace(path), code, 0
        with hf.FileLogProducer(path / "log") as log:
            for n in range(20):
                record = {"user": f"u{n % 3}", "page": f"p{n % 4}", "diff": n}
                log.send(record | {"ts": datetime(2026, 11, 17, 12, n, tzinfo=UTC)})
        run_job(
            self._launch().load(),
            runtime=self.place.runtime(),
            registry_url=self.place.registry_url,
            available_now=True,
        )
        self.savepoint = self.place.take().manifest.id

    def _launch(self, *changes: tuple[str, str]) -> Launch:
        code = self._code.format(log=str(self.place.path / "log"))
        for old, new in changes:
            assert old in code
            code = code.replace(old, new)
        self._files += 1
        app = self.place.path / f"checked_{self._files}.py"
        app.write_text(code)
        return Launch(app=app)

    def check(self, *changes: tuple[str, str], drop: bool = False) -> RestoreCheck:
        launch = self._launch(*changes)
        asked = Launch(app=launch.app, start_from=self.savepoint, allow_dropped=drop)
        return check_restore(asked, settings(self.place))

    def steps(self, *changes: tuple[str, str], drop: bool = False) -> dict[str, str]:
        """What becomes of each step: the outcome, or the error that it is refused with."""
        found = self.check(*changes, drop=drop)
        assert found.refused == any(part["error"] for part in found.to_dict()["parts"])
        return {
            part["uid"]: part["error"] or part["outcome"]
            for part in found.to_dict()["parts"]
            if part["part"] == "step"
        }


AS_IT_WAS = {"users": "restored", "pages": "restored", "sum": "restored"}
IMPORT = "from spark.processes import PairTotal as Total\n"
"""Where Python workers find it; code that is only checked may define its own."""
FIELDS = "sum: bigint, n: bigint"


@pytest.mark.timeout(300)
def test_every_step_is_judged_by_its_uid(tmp_path: Path) -> None:
    job = Changing(tmp_path, STEPS)
    assert job.steps() == AS_IT_WAS
    users, pages = '("users", log(flow, "seen")', '("pages", first'
    by_user, by_page = '.dropDuplicates(["user"])', '.dropDuplicates(["page"])'
    other = '.dropDuplicates(["x"])'
    columns = ((by_user, other), (by_page, by_user), (other, by_page))
    swapped_uids = ((users, users.replace("users", "pages")), (pages, '("users", first'))
    # Spark compares the types of columns alone, and looks for state by place.
    assert job.steps(*columns) == AS_IT_WAS | {
        "users": "OPERATOR_CHANGED",
        "pages": "OPERATOR_CHANGED",
    }
    assert job.steps((by_page, '.dropDuplicates(["user"])')) == AS_IT_WAS | {
        "pages": "OPERATOR_CHANGED"
    }
    assert job.steps(*columns, *swapped_uids) == AS_IT_WAS, "state follows the uid"
    key = ('log(flow, "edits"), "user")', 'log(flow, "edits"), "page")')
    assert job.steps(key)["sum"] == "KEYS_CHANGED"
    own = (IMPORT, CLASS)
    assert job.steps(own) == AS_IT_WAS
    renamed = (own, ("    total = hf", "    amount = hf"), ("self.total", "self.amount"))
    assert job.steps(*renamed)["sum"] == "STATE_VARIABLE_MISSING"
    assert job.steps(*renamed, drop=True)["sum"] == "migrated"
    for fields in ("amount: bigint, n: bigint", "n: bigint, sum: bigint"):
        assert job.steps(own, (FIELDS, fields))["sum"] == "STATE_TYPE_CHANGED"
    # What fits, and what is left behind only if that is said.
    more = ("    output =", '    more = hf.ValueState("int", default=0)\n    output =')
    assert job.steps(own, more)["sum"] == "migrated"
    gone = ('process("sum"', 'process("total"')
    assert job.steps(gone) == {
        "users": "restored",
        "pages": "restored",
        "total": "starts empty",
        "sum": "STATE_NOT_RESTORED",
    }
    assert job.steps(gone, drop=True)["sum"] == "dropped"
    # Spark would go on with 2 partitions without a word.
    plan = job.check(("parallelism=2", "parallelism=8")).plan
    assert (plan.partitions, plan.identity.parallelism) == (2, 8)


@pytest.mark.timeout(300)
def test_another_window_is_refused(tmp_path: Path) -> None:
    job = Changing(tmp_path, WINDOWS)
    assert job.steps() == {"counts": "restored"}
    assert job.steps(("10 min", "5 min")) == {"counts": "OPERATOR_CHANGED"}
    found = job.check(("10 min", "5 min")).to_dict()
    assert "5 min" in next(part["reason"] for part in found["parts"] if part["error"])
