"""Which epochs lead to a timeline."""

from __future__ import annotations

import pytest

from holdfast.checkpoint.timelines import Timeline, lineage, next_name, removed_on_the_way

TREE = (
    Timeline(),
    Timeline(name="t1", parent="t0", epoch=12),
    Timeline(name="t2", parent="t1", epoch=20),
    Timeline(name="t3", parent="t0", epoch=5),
    Timeline(name="t4", parent="t1", epoch=7),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t0", {"t0": None}),
        ("t1", {"t1": None, "t0": 12}),
        ("t2", {"t2": None, "t1": 20, "t0": 12}),
        ("t3", {"t3": None, "t0": 5}),
        # It went back past the point where its parent had begun.
        ("t4", {"t4": None, "t1": 7, "t0": 7}),
        ("a3", {"a3": None}),
    ],
)
def test_lineage(name: str, expected: dict[str, int | None]) -> None:
    assert lineage(TREE, name) == expected


def test_names_are_not_used_again() -> None:
    assert next_name(TREE) == "t5"
    assert next_name((Timeline(),)) == "t1"


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (("t0", 3), None),
        (("t0", 4), None),
        # Gone since t1 began, which took the job back to epoch 4.
        (("t0", 5), ("t0", 4, "t1")),
        (("t1", 9), None),
        (("t2", 8), None),
    ],
)
def test_output_that_a_rewind_has_removed(
    origin: tuple[str, int], expected: tuple[str, int, str] | None
) -> None:
    known = [
        Timeline(),
        Timeline(name="t1", parent="t0", epoch=4, sinks="rewind"),
        Timeline(name="t2", parent="t1", epoch=9, sinks="rewind"),
        Timeline(name="t3", parent="t0", epoch=7, sinks="keep"),
    ]
    start = Timeline(name="t4", parent=origin[0], epoch=origin[1], sinks="rewind")
    removed = removed_on_the_way([*known, start], "t4")
    found = None if removed is None else (removed.timeline, removed.after, removed.by.name)
    assert found == expected


def test_a_timeline_that_was_left_for_good_is_gone() -> None:
    known = [
        Timeline(),
        Timeline(name="t1", parent="t0", epoch=4, sinks="keep"),
        Timeline(name="t2", parent="t0", epoch=2, sinks="rewind"),
    ]
    start = Timeline(name="t3", parent="t1", epoch=9, sinks="rewind")
    removed = removed_on_the_way([*known, start], "t3")
    assert removed is not None
    assert (removed.timeline, removed.after) in {("t1", None), ("t0", 2)}
