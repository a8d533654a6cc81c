"""The API does what its description says, whatever it is sent (schemathesis)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from server.workshop import Live, canonical_savepoint, living

EXAMPLES = 6
"""Of each operation: with more than sixty of them, some hundreds in all."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with living(tmp_path_factory.mktemp("contract") / "home") as live:
        live.add_job()
        canonical_savepoint(live.savepoints, "sp-1", {"ann": 1})
        yield live


def test_answers_are_as_described(shared: Live) -> None:
    described = schemathesis.openapi.from_url(
        f"{shared.url}/api/v1/openapi.json",
        headers={"Authorization": f"Bearer {shared.tokens['operator']}"},
    )
    # A stream has no end that could be checked.
    schema = described.exclude(path="/api/v1/events")
    headers = {"Authorization": f"Bearer {shared.tokens['operator']}"}
    tried: list[str] = []

    for result in schema.get_all_operations():
        operation: Any = result

        def check(case: Any) -> None:
            tried.append(case.operation.label)
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=20)

        tried_with_few(operation.ok(), check)
    assert len(set(tried)) > 50
    assert len(tried) > 250


def tried_with_few(operation: Any, check: Callable[[Any], None]) -> None:
    """A Hypothesis test of one operation, with few examples and no deadline."""
    few = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    few(given(case=operation.as_strategy())(check))()
