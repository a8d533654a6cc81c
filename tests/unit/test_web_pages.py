"""Decisions of the web pages that need no browser."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.client.models import Graph, Node
from holdfast.server.ui.layout import columns_of, placed
from holdfast.server.ui.pages.job.logs import behind
from holdfast.server.ui.pages.job.sources import flat


def node(uid: str, kind: Literal["source", "process", "native", "sink"]) -> Node:
    return Node(uid=uid, kind=kind)


GRAPH = Graph(
    nodes=[
        node("a", "source"),
        node("b", "source"),
        node("sum", "process"),
        node("top", "native"),
        node("out", "sink"),
    ],
    edges=[("a", "sum"), ("b", "sum"), ("sum", "top"), ("top", "out"), ("a", "out")],
)


def test_every_edge_of_a_graph_goes_to_the_right() -> None:
    columns = columns_of(GRAPH)
    assert columns == {"a": 0, "b": 0, "sum": 1, "top": 2, "out": 3}
    assert all(columns[start] < columns[end] for start, end in GRAPH.edges)


def test_a_column_with_fewer_nodes_is_centred() -> None:
    rows = {each["uid"]: each["row"] for each in placed(GRAPH)}
    assert rows == {"a": 0, "b": 1, "sum": 0.5, "top": 0.5, "out": 0.5}


def test_a_graph_that_goes_round_in_circles_is_drawn_all_the_same() -> None:
    circle = Graph(
        nodes=[node("a", "process"), node("b", "process")], edges=[("a", "b"), ("b", "a")]
    )
    assert len(placed(circle)) == 2


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        ([], ["1"], ["1"]),
        (["1", "2"], ["1", "2", "3"], ["3"]),
        (["1", "2"], ["2", "3", "4"], ["3", "4"]),
        (["1", "2"], ["1", "2"], []),
        (["1", "2"], ["8", "9"], None),
    ],
)
def test_a_log_is_sent_line_by_line(
    before: list[str], now: list[str], added: list[str] | None
) -> None:
    assert behind(before, now) == added


def test_positions_are_told_by_partition() -> None:
    assert flat({"edits": {"0": 5, "1": 7}}) == {"edits/0": 5, "edits/1": 7}
    assert flat(3) == {"": 3}
