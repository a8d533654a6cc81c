"""What becomes of each part of a savepoint under other code: the decision, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoint.compatibility import (
    Code,
    adopted,
    check_backend,
    check_parallelism,
    check_resume,
    judge,
)
from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import StateMismatchError
from holdfast.job.graph import JobGraph, OperatorSignature

SUM = OperatorSignature(
    "process", {"user": "string"}, {"total": "value bigint", "pages": "list array<string>"}
)
SEEN = OperatorSignature("native", {}, detail="Deduplicate [user]")
WINDOW = OperatorSignature("native", {"user": "string"}, detail="Tumbling(10 min).aggregate()")
LOG = hf.sources.FileLog("/data/edits", "user string, diff bigint")


def code(
    steps: dict[str, OperatorSignature],
    *,
    sources: dict[str, Any] | None = None,
    backend: str = "heap",
    named: bool = True,
) -> Code:
    graph = JobGraph(sources={"edits": LOG} if sources is None else sources, steps=dict(steps))
    positions = {uid: at for at, uid in enumerate(steps)}
    return Code(graph=graph, named_sources=named, positions=positions, backend=backend)


def stored(steps: dict[str, OperatorSignature], **options: Any) -> JobIdentity:
    identity = JobIdentity(job_id="a1", name="wiki", parallelism=2, key_groups=64)
    return adopted(identity, code(steps, **options))


def outcomes(
    before: dict[str, OperatorSignature],
    after: Code,
    *,
    canonical: bool = False,
    allow: bool = False,
) -> dict[str, str]:
    verdicts = judge(stored(before), after, canonical=canonical, allow_dropped=allow)
    return {
        each.uid: each.refusal.name if each.refusal else each.outcome
        for each in verdicts
        if each.part == "step"
    }


def test_what_is_the_same_is_taken_as_it_lies_there() -> None:
    verdicts = judge(
        stored({"sum": SUM}), code({"sum": SUM}), canonical=False, allow_dropped=False
    )
    assert [(each.uid, each.outcome, each.rewritten) for each in verdicts] == [
        ("edits", "restored", False),
        ("sum", "restored", False),
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # Each of these Spark accepts in silence, and goes on with empty or wrong state.
        (replace(SUM, keys={"page": "string"}), "KEYS_CHANGED"),
        (replace(SUM, variables={"sum": "value bigint"}), "STATE_VARIABLE_MISSING"),
        (
            replace(SUM, variables={**SUM.variables, "total": "value string"}),
            "STATE_TYPE_CHANGED",
        ),
        (
            replace(SUM, variables={**SUM.variables, "total": "value struct<b:int,a:int>"}),
            "STATE_TYPE_CHANGED",
        ),
        (replace(SUM, clock="EventTime"), "CLOCK_CHANGED"),
        (SEEN, "OPERATOR_CHANGED"),
        # These fit.
        (replace(SUM, variables={**SUM.variables, "n": "value int"}), "migrated"),
        (
            replace(
                SUM,
                variables={"sum": "value bigint", "pages": "list array<string>"},
                renames={"sum": "total"},
                older_names={"sum": ("total",)},
            ),
            "migrated",
        ),
    ],
)
def test_a_process_that_changed(changed: OperatorSignature, expected: str) -> None:
    assert outcomes({"step": SUM}, code({"step": changed})) == {"step": expected}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SEEN, replace(SEEN, detail="Deduplicate [page]")),
        (WINDOW, replace(WINDOW, detail="Tumbling(5 min).aggregate()")),
    ],
)
def test_a_native_step_that_changed(
    before: OperatorSignature, after: OperatorSignature
) -> None:
    assert outcomes({"step": before}, code({"step": after})) == {"step": "OPERATOR_CHANGED"}


def test_steps_that_swap_places_keep_their_state_and_those_that_swap_uids_do_not() -> None:
    pages = replace(SEEN, detail="Deduplicate [page]")
    before = {"users": SEEN, "pages": pages}
    assert outcomes(before, code({"pages": pages, "users": SEEN})) == {
        "pages": "restored",
        "users": "restored",
    }
    swapped = code({"users": pages, "pages": SEEN})
    assert set(outcomes(before, swapped).values()) == {"OPERATOR_CHANGED"}
    with pytest.raises(StateMismatchError, match="OPERATORS_REORDERED"):
        check_resume(stored(before), code({"pages": pages, "users": SEEN}))
    check_resume(stored(before), code(before))


def test_steps_that_come_and_go() -> None:
    assert outcomes({"a": SUM}, code({"a": SUM, "b": SUM})) == {
        "a": "restored",
        "b": "starts empty",
    }
    # A renamed uid is never guessed.
    renamed = code({"b": SUM})
    assert outcomes({"a": SUM}, renamed) == {"b": "starts empty", "a": "STATE_NOT_RESTORED"}
    assert outcomes({"a": SUM}, renamed, allow=True) == {"b": "starts empty", "a": "dropped"}


def test_a_source_that_is_to_begin_anew() -> None:
    def judged(*sources: str) -> dict[str, str]:
        found = judge(
            stored({"a": SUM}),
            code({"a": SUM}),
            canonical=False,
            allow_dropped=False,
            reset_sources=sources,
        )
        return {each.uid: each.refusal.name if each.refusal else each.outcome for each in found}

    assert judged() == {"edits": "restored", "a": "restored"}
    assert judged("edits") == {"edits": "starts empty", "a": "restored"}
    assert judged("other")["other"] == "SOURCE_NOT_RESET"


def test_what_has_to_be_written_anew() -> None:
    def rewritten(
        before: dict[str, OperatorSignature], after: Code, **options: bool
    ) -> list[str]:
        canonical, allowed = (options.get(n, False) for n in ("canonical", "allow_dropped"))
        found = judge(stored(before), after, canonical=canonical, allow_dropped=allowed)
        return [each.uid for each in found if each.rewritten]

    both = {"sum": SUM, "seen": SEEN}
    assert rewritten({"sum": SUM}, code({"sum": SUM}, backend="rocksdb")) == ["sum"]
    assert rewritten(both, code(both), canonical=True) == ["sum"]
    # The first native step: Spark encodes all state of a query in one way.
    assert rewritten({"sum": SUM}, code(both)) == ["sum"]
    assert rewritten(both, code(both)) == []
    less = replace(SUM, variables={"total": "value bigint"})
    assert rewritten({"sum": SUM}, code({"sum": less}), allow_dropped=True) == ["sum"]


def fix_of(check: Callable[[], object]) -> str:
    with pytest.raises(StateMismatchError) as caught:
        check()
    return caught.value.fix or ""


def test_a_refused_resume_names_a_way_that_exists() -> None:
    heap, memory = stored({"sum": SUM}), stored({"seen": SEEN}, backend="memory")
    assert "holdfast rescale wiki 8" in fix_of(lambda: check_parallelism(heap, 8, None))
    assert "rescale" not in fix_of(lambda: check_parallelism(memory, 8, None))
    assert "--from" in fix_of(lambda: check_backend(heap, "rocksdb"))
    assert "--from" not in fix_of(lambda: check_backend(memory, "heap"))
    renamed = code({"sum": SUM}, sources={"changes": LOG})
    assert "--from" in fix_of(lambda: check_resume(heap, renamed))


def test_a_store_in_memory_cannot_be_exchanged() -> None:
    assert outcomes({"seen": SEEN}, code({"seen": SEEN}, backend="memory")) == {
        "seen": "BACKEND_DIFFERS"
    }
    old = stored({"seen": SEEN}, backend="memory")
    same = judge(
        old, code({"seen": SEEN}, backend="memory"), canonical=False, allow_dropped=False
    )
    assert [each.outcome for each in same] == ["restored", "restored"]
    more = code({"seen": SEEN, "more": SEEN}, backend="memory")
    refused = judge(old, more, canonical=False, allow_dropped=True)
    assert {each.refusal.name for each in refused if each.refusal} == {"OPERATORS_CHANGED"}


def test_sources() -> None:
    def sources(after: Code, *, allow: bool = False) -> dict[str, str]:
        verdicts = judge(stored({"sum": SUM}), after, canonical=False, allow_dropped=allow)
        return {
            each.uid: each.refusal.name if each.refusal else each.outcome
            for each in verdicts
            if each.part == "source"
        }

    moved = hf.sources.FileLog("/other/edits", "user string, diff bigint")
    assert sources(code({"sum": SUM}, sources={"edits": moved})) == {"edits": "migrated"}
    assert sources(code({"sum": SUM}, sources={"edits": LOG, "more": moved})) == {
        "edits": "restored",
        "more": "starts empty",
    }
    gone = code({"sum": SUM}, sources={"more": moved})
    assert sources(gone) == {"more": "starts empty", "edits": "STATE_NOT_RESTORED"}
    assert sources(gone, allow=True) == {"more": "starts empty", "edits": "dropped"}
    assert sources(code({"sum": SUM}, named=False)) == {"edits": "SOURCE_READERS_CHANGED"}


def test_a_job_of_before_places_were_noted() -> None:
    old = stored({"a": SUM, "b": SEEN})
    operators = {
        uid: {name: value for name, value in step.items() if name != "position"}
        for uid, step in old.operators.items()
    }
    old = replace(old, operators=operators)
    check_resume(old, code({"a": SUM, "b": SEEN}))
    with pytest.raises(StateMismatchError, match="did not note their places"):
        check_resume(old, code({"b": SEEN, "a": SUM}))
