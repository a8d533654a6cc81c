"""A fork over REST: what it has written is compared, and its promotion is planned."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.main import main
from holdfast.client.requests import CompareRequest, PromoteRequest
from holdfast.errors import AccessError, ConflictError, NotFoundError
from server.rehearsed import rehearse
from server.workshop import Live


@pytest.fixture
def forked(live: Live) -> Live:
    rehearse(live.service.backend.settings, live.registry)
    return live


def test_outputs_are_compared(forked: Live) -> None:
    with forked.client() as client:
        assert client.job("v2").forked_from == "wiki"
        assert client.job("wiki").forked_from is None
        asked = client.ask("wiki", CompareRequest(other="v2", limit=1), key="once")
        assert (asked.job, asked.kind) == ("wiki", "compare")
        again = client.ask("wiki", CompareRequest(other="v2", limit=1), key="once")
        assert again.id == asked.id
        # It keeps nobody from the job.
        assert client.job("wiki").operation is None
        found = client.wait(asked).result
    assert found is not None
    assert [(each["job"], each["after"], each["epoch"]) for each in found["jobs"]] == [
        ("wiki", 1, 3),
        ("v2", 1, 3),
    ]
    assert (found["same"], found["same_input"], found["samples_cut"]) == (False, False, False)
    assert found["sources"] == [{"uid": "edits", "only_read_by": {"wiki": 0, "v2": 1}}]
    (out,) = found["sinks"]
    assert (out["rows"], out["both"]) == ({"wiki": 6, "v2": 6}, 4)
    assert out["only"] == {"wiki": 2, "v2": 2}
    assert out["samples"] == [
        {"job": "wiki", "row": {"user": "wiki"}},
        {"job": "v2", "row": {"user": "v2"}},
    ]


def test_what_cannot_be_compared_is_refused(forked: Live) -> None:
    forked.add_job("zoo")
    with forked.client() as client:
        with pytest.raises(NotFoundError, match="JOB_NOT_FOUND"):
            client.ask("wiki", CompareRequest(other="nobody"))
        with pytest.raises(ConflictError, match="NOT_A_FORK"):
            client.wait(client.ask("v2", CompareRequest(other="zoo")))
        with pytest.raises(NotFoundError, match="SINK_NOT_FOUND"):
            client.wait(client.ask("v2", CompareRequest(other="wiki", sink="in")))
    with (
        forked.client("viewer") as viewer,
        pytest.raises(AccessError, match="ROLE_TOO_WEAK"),
    ):
        viewer.ask("wiki", CompareRequest(other="v2"))
    with forked.http() as http:
        for body in ({}, {"other": "v2", "limit": 101}, {"other": "../x"}):
            assert http.post("/api/v1/jobs/wiki/compare", json=body).status_code == 422


def test_the_plan_of_a_promotion_says_what_becomes_of_the_output(forked: Live) -> None:
    with forked.client() as client:
        plan = client.wait(client.plan("v2", PromoteRequest(sink="rewind"))).result
    assert plan is not None
    assert (plan["job"], plan["of_job"], plan["refused"]) == ("wiki", "v2", False)
    (out,) = plan["sinks"]
    assert (out["uid"], out["epochs"], out["rows"], out["choice"]) == ("out", 2, 6, "rewind")
    assert plan["beyond"]


def test_the_command_line_says_the_same(
    forked: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(forked.home)]
    assert main(["diff", "wiki", "v2", *home, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    with forked.client() as client:
        found = client.wait(client.ask("wiki", CompareRequest(other="v2"))).result
    assert found == told | {"samples_cut": False}
    assert main(["diff", "wiki", "v2", *home]) == 1
    shown = capsys.readouterr().out
    assert "source edits: v2 has read 1 file that wiki has not" in shown
    assert "ROWS IN BOTH" in shown and "out, ONLY IN" in shown
