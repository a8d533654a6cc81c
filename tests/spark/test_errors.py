"""Every mistake has a name, a cause, a fix and, where there is one, a line of user code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import (
    DataError,
    EnvironmentProblem,
    HoldfastError,
    JobDefinitionError,
    OutputSchemaError,
    UserCodeError,
)
from spark import faulty
from spark.processes import LargeAndSmall, RunningTotal
from spark.workplace import Memory, Workplace

SCHEMA = "user string, diff bigint"
ROWS = [("ann", 1), ("bob", 2), ("x" * 10_000, 3), ("poison", 4), ("ann", 5)]


def line_of(text: str) -> int:
    lines = Path(inspect.getfile(faulty)).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def run(place: Workplace, process: hf.KeyedProcess, rows: Any = ROWS) -> None:
    def pipeline(flow: hf.Flow) -> None:
        source = flow.source("edits", hf.sources.Collection(rows, SCHEMA, rows_per_epoch=2))
        step = flow.key_by(source, "user").process("step", process)
        flow.sink("out", step, hf.sinks.Files(place.path / "out"))

    place.run(pipeline)


def visible(place: Workplace) -> list[str]:
    return [path.name for path in (place.path / "out").iterdir() if path.name[0] != "_"]


def test_failing_function(place: Workplace) -> None:
    with pytest.raises(UserCodeError) as caught:
        run(place, faulty.FailsOnPoison())
    error = caught.value
    assert error.name == "USER_FUNCTION_FAILED"
    first_line = error.message.splitlines()[0]
    assert "ValueError: cannot digest this" in first_line
    assert f"faulty.py:{line_of('cannot digest this')} in digest" in first_line
    assert error.facts["key"] == "'poison'"
    assert "diff=4" in error.facts["record"]
    assert "in digest" in error.facts["traceback"]
    assert error.fix
    # The first epoch is there, nothing of the second.
    assert {name.split("-")[2] for name in visible(place)} == {"000000000"}
    assert [epoch.epoch for epoch in place.epochs()] == [0]
    # With the function corrected, the job goes on from there.
    run(place, faulty.Tolerant())
    assert [epoch.epoch for epoch in place.epochs()] == [0, 1, 2]


def test_long_values_are_cut(place: Workplace) -> None:
    with pytest.raises(UserCodeError) as caught:
        run(place, faulty.FailsOnLong())
    assert len(caught.value.message) < 2_000
    assert "characters)" in caught.value.facts["key"]


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (faulty.yields(("a", "b")), "declared is (user string, n bigint)"),
        (faulty.yields(("a",)), "1 values for 2 columns"),
        (faulty.yields(("a", 2**63)), "yielded"),
        (faulty.yields({"user": "a", "m": 1}), "undeclared columns ['m']"),
        (faulty.yields(7), "int is not a row"),
        (faulty.yields(hf.to("nowhere", 1)), "nowhere"),
    ],
)
def test_output_that_does_not_fit(place: Workplace, process: Any, why: str) -> None:
    with pytest.raises(OutputSchemaError, match="OUTPUT_DOES_NOT_FIT") as caught:
        run(place, process, ROWS[:2])
    assert why in caught.value.message
    assert "key:" in caught.value.message
    assert "record:" in caught.value.message
    assert visible(place) == []


def test_batch_function_that_returns_something_else(place: Workplace) -> None:
    with pytest.raises(OutputSchemaError, match=r"OUTPUT_DOES_NOT_FIT.*'wrong'"):
        run(place, faulty.WrongTable(), ROWS[:2])


def test_state_that_overflows(place: Workplace) -> None:
    with pytest.raises(DataError, match=r"STATE_VALUE_DOES_NOT_FIT.*'ann'.*'total'"):
        run(place, faulty.Overflows(), ROWS[:2])


def test_attribute_that_is_not_state(place: Workplace) -> None:
    with pytest.raises(HoldfastError, match=r"ATTRIBUTE_IS_NOT_STATE.*last_user"):
        run(place, faulty.KeepsAttribute(), ROWS[:2])


def test_state_that_is_not_declared(place: Workplace) -> None:
    """Found before start where the source can be read, else at the first record."""
    with pytest.raises(JobDefinitionError, match="STATE_NOT_DECLARED") as caught:
        run(place, faulty.UsesUndeclared(), ROWS[:2])
    assert f"faulty.py:{line_of('self.count.value += 1')}" in caught.value.message
    assert place.epochs() == []
    with pytest.raises(UserCodeError, match=r"STATE_NOT_DECLARED.*self.hidden"):
        run(place, faulty.UsesHidden(), ROWS[:2])


def test_column_that_does_not_exist(place: Workplace) -> None:
    with pytest.raises(UserCodeError, match="no column 'dif'; it has user, diff"):
        run(place, faulty.MistypedColumn(), ROWS[:2])


def test_worker_that_ends_itself(place: Workplace) -> None:
    with pytest.raises(EnvironmentProblem, match="PYTHON_WORKER_DIED"):
        run(place, faulty.Exits(), ROWS[:2])
    assert visible(place) == []


def test_process_that_cannot_be_shipped(place: Workplace) -> None:
    with pytest.raises(JobDefinitionError, match="PROCESS_NOT_SHIPPABLE"):
        run(place, faulty.HoldsLock(), ROWS[:2])


def refusals() -> list[tuple[str, str, Callable[[hf.Flow, Any, Any], None]]]:
    """Name of the error, a part of its text, and the pipeline that is refused."""

    def step(flow: hf.Flow, frame: Any, *keys: str) -> Any:
        return flow.key_by(frame, *keys).process("step", RunningTotal())

    return [
        ("DUPLICATE_UID", "'edits' is used twice", lambda flow, f, s: flow.sink("edits", f, s)),
        ("UID_MISSING", "sink", lambda flow, f, s: flow.sink(None, f, s)),
        ("UID_MISSING", "sink", lambda flow, f, s: flow.sink(f, "out", s)),
        ("INVALID_UID", "a b", lambda flow, f, s: flow.sink("a b", f, s)),
        ("KEY_NOT_FOUND", "'usr'", lambda flow, f, s: step(flow, f, "usr")),
        ("KEY_MISSING", "no column", lambda flow, f, s: step(flow, f)),
        ("NOT_A_FRAME", "'frame'", lambda flow, f, s: flow.sink("out", "frame", s)),
        ("WRONG_ARGUMENT", "'path'", lambda flow, f, s: flow.sink("out", f, "path")),
        ("WRONG_ARGUMENT", "RunningTotal", lambda flow, f, s: flow.key_by(f, "user").process(
            "step", RunningTotal)),
        ("SINK_MISSING", "no sink", lambda flow, f, s: None),
        ("SIDE_OUTPUT_NOT_FOUND", "'late'", lambda flow, f, s: flow.sink(
            "out", flow.key_by(f, "user").process("step", LargeAndSmall()).side("late"), s)),
        ("INVALID_OPTION", "'median'", lambda flow, f, s: flow.key_by(f, "user").reduce(
            "step", diff="median")),
        ("INVALID_OPTION", "no column", lambda flow, f, s: flow.key_by(f, "user").aggregate(
            "step")),
        ("AMBIGUOUS_COLUMN", "'user'", lambda flow, f, s: flow.key_by(
            f.selectExpr("diff", "user", "user"), "diff").process("step", RunningTotal())),
        ("STEP_READ_BY_TWO", "'step'", _read_twice),
        ("SINK_MIXES_TRUNK", "'edits'", lambda flow, f, s: flow.sink("out", step(
            flow, f, "user").union(f), s)),
        ("SINK_NOT_STREAMING", "'out'", lambda flow, f, s: flow.sink(
            "out", f.sparkSession.range(3), s)),
    ]  # fmt: skip


def _read_twice(flow: hf.Flow, frame: Any, sink: Any) -> None:
    first = flow.key_by(frame, "user").process("step", RunningTotal())
    renamed = first.withColumnRenamed("total", "diff")
    flow.sink("second", flow.key_by(renamed, "user").process("again", RunningTotal()), sink)
    flow.sink("first", first, sink)


@pytest.mark.parametrize(
    ("name", "text", "declare"), refusals(), ids=[refusal[0] for refusal in refusals()]
)
def test_refused_before_start(
    place: Workplace, memory: Memory, name: str, text: str, declare: Any
) -> None:
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        declare(flow, flow.source("edits", hf.sources.Collection(ROWS, SCHEMA)), sink)

    with pytest.raises(JobDefinitionError) as caught:
        place.run(pipeline)
    error = caught.value
    assert error.name == name
    assert text in error.message
    assert error.fix
    if name in ("DUPLICATE_UID", "UID_MISSING", "INVALID_UID", "KEY_NOT_FOUND", "NOT_A_FRAME"):
        assert "test_errors.py:" in error.message
    assert place.epochs() == []
