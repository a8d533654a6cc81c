"""`holdfast.testing`: a process in plain Python, on the same core as in a job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast as hf
from holdfast.errors import (
    JobDefinitionError,
    NotFoundError,
    OutputSchemaError,
    UsageError,
    UserCodeError,
)
from holdfast.savepoint.archive import import_savepoint
from holdfast.savepoint.store import SavepointStore
from holdfast.testing import Harness

GOLDEN = Path(__file__).parents[1] / "spark" / "golden"
SCHEMA = "user string, diff bigint"


class ComputeDiffs(hf.KeyedProcess):
    """Running balance; large edits also go to the side."""

    total = hf.ValueState("bigint", default=0)
    pages = hf.ListState("bigint")
    output = "user string, total bigint"
    sides = {"large": "user string, diff bigint"}

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit

    def open(self) -> None:
        self.greeting = "hello"  # made in every worker anew

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        if edit.diff is None:
            raise ValueError("no diff")
        self.total.value += edit.diff
        self.pages.add(edit.diff)
        if edit.diff > self.limit:
            yield hf.to("large", edit.user, edit.diff)
        yield edit.user, self.total.value


@pytest.fixture
def harness() -> Harness:
    return Harness(ComputeDiffs(), SCHEMA, key="user")


def test_output_side_and_state(harness: Harness) -> None:
    assert harness.push(("ann", 3), {"user": "ann", "diff": 400}) == [("ann", 3), ("ann", 403)]
    assert harness.push((None, 1)) == [(None, 1)]
    assert sorted(harness.output, key=repr) == [("ann", 3), ("ann", 403), (None, 1)]
    assert harness.side("large") == [("ann", 400)]
    assert harness.state("ann") == {"total": 403, "pages": [3, 400]}
    assert harness.state("nobody") == {}


def test_crash_keeps_what_was_committed(harness: Harness) -> None:
    harness.push(("ann", 1))
    harness.crash()
    assert harness.push(("ann", 2)) == [("ann", 3)]


def test_failed_epoch_leaves_nothing(harness: Harness) -> None:
    harness.push(("ann", 1))
    with pytest.raises(UserCodeError, match=r"USER_FUNCTION_FAILED.*ValueError: no diff"):
        harness.push(("ann", 10), ("bob", 20), ("cid", None))
    assert harness.state("ann") == {"total": 1, "pages": [1]}
    assert harness.output == [("ann", 1)]
    # As in a job: the epoch is run again, with the record corrected.
    assert sorted(harness.push(("ann", 10), ("bob", 20))) == [("ann", 11), ("bob", 20)]


def test_snapshot_and_restore(harness: Harness) -> None:
    harness.push(("ann", 1))
    before = harness.snapshot()
    harness.push(("ann", 5))
    other = Harness(ComputeDiffs(), SCHEMA, key="user")
    for restored in (harness, other):
        restored.restore(before)
        assert restored.push(("ann", 2)) == [("ann", 3)]


def test_composite_key() -> None:
    harness = Harness(ComputeDiffs(), SCHEMA, key=("user", "diff"))
    harness.push(("ann", 1), ("ann", 1), ("ann", 2))
    assert harness.state(("ann", 1))["total"] == 2


def test_many_epochs_equal_a_dict(harness: Harness) -> None:
    truth: dict[str, int] = {}
    for epoch in range(60):
        rows = [(f"user {n % 7}", n - epoch) for n in range(20)]
        for user, diff in rows:
            truth[user] = truth.get(user, 0) + diff
        harness.push(*rows)
        if epoch % 9 == 0:
            harness.crash()
    assert {user: harness.state(user)["total"] for user in truth} == truth


def test_mistakes_have_names(harness: Harness) -> None:
    with pytest.raises(JobDefinitionError, match=r"ROW_DOES_NOT_FIT.*'many'"):
        harness.push(("ann", "many"))
    with pytest.raises(JobDefinitionError, match=r"ROW_DOES_NOT_FIT.* 1 values for 2 columns"):
        harness.push(("ann",))
    with pytest.raises(JobDefinitionError, match="SIDE_OUTPUT_NOT_FOUND"):
        harness.side("late")
    with pytest.raises(JobDefinitionError, match="KEY_NOT_FOUND"):
        Harness(ComputeDiffs(), SCHEMA, key="page")

    class Wrong(ComputeDiffs):
        def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
            yield (1, 2, 3)

    with pytest.raises(OutputSchemaError, match="OUTPUT_DOES_NOT_FIT"):
        Harness(Wrong(), SCHEMA, key="user").push(("ann", 1))


class Total(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_it_goes_on_from_the_savepoint_of_a_real_job(
    tmp_path: Path, backend: Literal["heap", "rocksdb"]
) -> None:
    rows = [(f"user-{n % 5}", n * 3 - 20) for n in range(24)]
    store = SavepointStore(tmp_path)
    savepoint = import_savepoint(GOLDEN / "canonical-1.tar.zst", store)  # of the first 16
    harness = Harness(Total(), SCHEMA, key="user", backend=backend)
    harness.restore_savepoint(savepoint.path, "sum")
    rows.append(("user-0", 1))
    totals = {f"user-{n}": 0 for n in range(5)}
    truth = []
    for user, diff in rows:
        totals[user] += diff
        truth.append((user, totals[user]))
    assert sorted(harness.push(*rows[16:24])) == sorted(truth[16:24])
    harness.crash()
    assert harness.push(rows[24]) == truth[24:]
    with pytest.raises(NotFoundError, match="no process step 'other'"):
        harness.restore_savepoint(savepoint.path, "other")
    with pytest.raises(UsageError, match="keyed by user; the harness by diff"):
        Harness(Total(), SCHEMA, key="diff").restore_savepoint(savepoint.path, "sum")
    native = import_savepoint(GOLDEN / "heap-1.tar.zst", store)
    with pytest.raises(UsageError, match="SAVEPOINT_NOT_CANONICAL"):
        harness.restore_savepoint(native.path, "sum")
