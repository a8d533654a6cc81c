"""Any Spark SQL type, all the way through Spark. Each by itself is in tests/unit."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import JobDefinitionError
from spark.processes import keep_all
from spark.workplace import Memory, Workplace
from unit.test_state_types import ONLY_STATE, VALUES

KEYS = [f"k{number}" for number in range(len(VALUES))]
STATES = {f"s{number}": kind for number, kind in enumerate(VALUES | ONLY_STATE)}


def test_all_types_as_key_parts_and_state(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    first = [values[0] for values in VALUES.values()]
    second = [None for _ in VALUES]
    states = [[values[at] for values in (VALUES | ONLY_STATE).values()] for at in (0, 1)]
    nulls = [None] * len(STATES)
    rows = [
        (number, *key, *state)
        for number, (key, state) in enumerate(
            [
                (first, states[0]), (second, nulls),
                (first, states[1]), (second, states[0]),
                (first, nulls), (second, states[1]),
                (first, states[0]), (second, nulls),
            ]
        )
    ]  # fmt: skip
    schema = ", ".join(
        [
            "number bigint",
            *(f"{name} {kind}" for name, kind in zip(KEYS, VALUES, strict=True)),
            *(f"{name} {kind}" for name, kind in STATES.items()),
        ]
    )
    process = keep_all(STATES)

    def pipeline(flow: hf.Flow) -> None:
        source = flow.source("in", hf.sources.Collection(rows, schema, rows_per_epoch=2))
        flow.sink("out", flow.key_by(source, *KEYS).process("keep", process), sink)

    # A heap of one byte: state is reloaded from its stored form in every epoch.
    place.run(pipeline, heap_limit="1 b")
    found = sorted(written())
    assert len({key for _, key, _ in found}) == 2
    befores = [before for _, _, before in found]
    assert befores[0] == befores[1] == repr(nulls)
    assert befores[2] == befores[5] == _stored(states[0])
    assert befores[4] == befores[7] == _stored(states[1])
    assert befores[3] == befores[6] == repr(nulls)


def _stored(state: list[Any]) -> str:
    """A struct comes back as a named tuple; all else as it was written."""
    shown = list(map(repr, state))
    at = list(STATES.values()).index("struct<a:int,b:array<bigint>>")
    shown[at] = f"Struct(a={state[at][0]!r}, b={state[at][1]!r})"
    return f"[{', '.join(shown)}]"


@pytest.mark.parametrize("kind", list(ONLY_STATE))
def test_maps_cannot_be_keys(place: Workplace, memory: Memory, kind: str) -> None:
    sink, _ = memory("out")

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Collection([], f"k0 {kind}, number int")
        flow.sink(
            "out",
            flow.key_by(flow.source("in", source), "k0").process("keep", keep_all({})),
            sink,
        )

    with pytest.raises(JobDefinitionError, match="INVALID_KEY_TYPE"):
        place.run(pipeline)
