"""Broadcast state, by the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.testing import Harness

SCHEMA = "user string, n bigint"
RULES = "name string, words array<string>"
Make = Callable[..., Harness]


class Matches(hf.KeyedProcess):
    rules = hf.BroadcastState("string", "array<string>")
    output = "user string, rules string"

    def on_broadcast(self, row: Any, ctx: hf.Context) -> None:
        if row.words is None:
            del self.rules[row.name]
        else:
            self.rules[row.name] = row.words

    def process(self, record: Any, ctx: hf.Context) -> Iterator[Any]:
        if record.n < 0:
            self.rules["x"] = ["not here"]
        found = {name: self.rules[name] for name in sorted(self.rules)}
        for words in found.values():
            words.append("changed in place")
        yield ctx.key, repr({name: words[:-1] for name, words in found.items()})


@pytest.fixture(params=["heap", "rocksdb"])
def make(request: pytest.FixtureRequest) -> Make:
    return partial(
        Harness, Matches(), SCHEMA, key="user", broadcast=RULES, backend=request.param
    )


def test_rules_reach_every_key_and_survive_a_crash(make: Make) -> None:
    harness = make()
    users = [(f"user-{i}", 1) for i in range(200)]
    assert {rules for _, rules in harness.push(*users)} == {"{}"}
    harness.broadcast(("a", ["1"]), ("b", ["2"]), ("a", ["3"]))
    kept = harness.snapshot()
    harness.crash()
    assert {rules for _, rules in harness.push(*users)} == {"{'a': ['3'], 'b': ['2']}"}
    harness.broadcast(("b", None))
    assert {rules for _, rules in harness.push(*users)} == {"{'a': ['3']}"}
    harness.restore(kept)
    assert {rules for _, rules in harness.push(*users)} == {"{'a': ['3'], 'b': ['2']}"}


def test_failed_rule_changes_nothing(make: Make) -> None:
    harness = make()
    harness.broadcast(("a", ["1"]))
    with pytest.raises(HoldfastError, match=r"KeyError.*test_broadcast"):
        harness.broadcast(("a", ["2"]), ("missing", None))
    assert harness.push(("ann", 1)) == [("ann", "{'a': ['1']}")]


def test_only_on_broadcast_may_write(make: Make) -> None:
    with pytest.raises(HoldfastError, match="BROADCAST_READ_ONLY"):
        make().push(("ann", -1))


class NoRules(hf.KeyedProcess):
    output = "user string"

    def process(self, record: Any, ctx: hf.Context) -> None:
        """Nothing."""


class NoOnBroadcast(NoRules):
    rules = hf.BroadcastState("string", "bigint")


@pytest.mark.parametrize(
    ("process", "broadcast"), [(Matches(), None), (NoRules(), RULES), (NoOnBroadcast(), RULES)]
)
def test_half_a_broadcast_is_refused(process: hf.KeyedProcess, broadcast: str | None) -> None:
    with pytest.raises(JobDefinitionError, match="BROADCAST_MISSING"):
        Harness(process, SCHEMA, key="user", broadcast=broadcast)
