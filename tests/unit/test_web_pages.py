"""Decisions of the web pages that need no browser."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from holdfast.client.models import ClusterMember, Graph, Node, StepState
from holdfast.control.output_summary import bounded, column_lines, input_lines
from holdfast.server.ui.comparison import (
    LONGEST_VALUE,
    sample_table,
    sink_columns,
    sink_rows,
    verdict_of,
)
from holdfast.server.ui.growth import growth_row, limit_in
from holdfast.server.ui.layout import columns_of, placed
from holdfast.server.ui.pages.cluster import member_row
from holdfast.server.ui.pages.job.epochs import apart
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


# -- a fork beside its job -------------------------------------------------------------


def told(*, same: bool = False, ahead: int = 0, **sink: Any) -> dict[str, Any]:
    """What a comparison of `wiki` with its fork `v2` came to."""
    out = {
        "uid": "out",
        "both": 4,
        "only": {"wiki": 2, "v2": 1},
        "only_columns": {"wiki": [], "v2": []},
        "samples": [],
    }
    return {
        "jobs": [{"job": "wiki"}, {"job": "v2"}],
        "same": same,
        "same_input": ahead == 0,
        "sources": [{"uid": "edits", "only_read_by": {"wiki": 0, "v2": ahead}}],
        "sinks": [out | sink],
    }


def test_a_difference_alarms_only_if_both_have_read_the_same() -> None:
    assert verdict_of(told(same=True))[1] == "good"
    assert verdict_of(told())[1] == "warn"
    assert verdict_of(told(ahead=2))[1] == "calm"
    assert list(input_lines(told())) == ["Both have read the same input."]
    assert list(input_lines(told(ahead=2))) == [
        "source edits: v2 has read 2 files that wiki has not",
        "They have not read the same: a difference may only mean that one is ahead.",
    ]


def test_sinks_are_compared_in_a_table() -> None:
    labels = [column.label for column in sink_columns(told())]
    assert labels == ["Sink", "Rows in both", "Only in wiki", "Only in v2"]
    assert sink_rows(told()) == [
        {"key": "out", "sink": "out", "both": 4, "first": 2, "second": 1}
    ]
    more = told(only_columns={"wiki": [], "v2": ["bot", "why"]})
    assert list(column_lines(more)) == [
        "sink out: only v2 writes the columns bot, why; the others are compared"
    ]


def test_names_of_columns_are_data() -> None:
    samples = [
        {"job": "wiki", "row": {"key": "a", "job": 2**60}},
        {"job": "v2", "row": {"key": "x" * 999, "job": None}},
    ]
    columns, rows = sample_table(samples)
    assert [(each.name, each.label) for each in columns] == [
        ("job", "Only in"),
        ("c0", "key"),
        ("c1", "job"),
    ]
    assert rows[0] == {"key": "0", "job": "wiki", "c0": "a", "c1": str(2**60)}
    assert (len(rows[1]["c0"]), rows[1]["c1"]) == (LONGEST_VALUE + 1, "")


def test_samples_have_a_bound() -> None:
    samples = [{"job": "wiki", "row": {"n": n}} for n in range(100)]
    whole = bounded(told(samples=samples))
    assert (len(whole["sinks"][0]["samples"]), whole["samples_cut"]) == (100, False)
    some = bounded(told(samples=samples), 500)
    assert 5 < len(some["sinks"][0]["samples"]) < 20
    assert some["samples_cut"]
    assert some["sinks"][0]["both"] == 4


# -- growth, and workers ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (None, ""),
        (0.0, "reached"),
        (0.001, "in 1 min"),
        (0.5, "in 30 min"),
        (9.2, "in 9 h"),
        (72.0, "in 3 days"),
        (1e6, "in more than a year"),
    ],
)
def test_a_limit_is_told_as_one_would_say_it(hours: float | None, words: str) -> None:
    assert limit_in(hours) == words
    step = StepState(
        step="sum",
        rows=3,
        bytes=90,
        rows_per_hour=1.5,
        bytes_per_hour=-2.0,
        hours_to_limit=hours,
    )
    assert growth_row(step) == {
        "key": "sum",
        "step": "sum",
        "rows": 3,
        "bytes": 90,
        "rows_per_hour": 1.5,
        "bytes_per_hour": -2.0,
        "limit": words,
    }


def member(name: str, pid: int | None, *executors: int) -> ClusterMember:
    return ClusterMember(
        name=name,
        state="gone" if pid is None else "alive",
        pid=pid,
        cores=1,
        cores_used=len(executors),
        executors=list(executors),
        memory="1g",
        since=None,
    )


def test_only_a_worker_that_lives_can_be_killed() -> None:
    alive = member_row(member("worker-1", 7, 8, 9), "")
    assert alive["executors"] == "process 8, process 9"
    assert [each["reason"] for each in alive["actions"]] == [""]
    gone = member_row(member("worker-1", None), "")
    assert (gone["executors"], gone["actions"][0]["reason"]) == ("", "Its process is gone.")
    assert member_row(member("worker-1", 7), "viewer")["actions"][0]["reason"] == "viewer"
    assert member_row(member("master", 6), "")["actions"] == []


def test_an_epoch_is_as_high_in_the_chart_as_it_took_long() -> None:
    outer = {"plan": 9.5, "execute": 8.0, "commit": 0.5}
    shown = apart({**outer, "sinks": 6.0, "workers": 0.5, "load": 3.0})
    assert shown == {"plan": 9.5, "execute": 1.5, "commit": 0.5, "sinks": 6.0, "workers": 0.5}
    assert sum(shown.values()) == sum(outer.values())
    assert apart({"plan": 1.0}) == {"plan": 1.0}
