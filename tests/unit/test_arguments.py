"""Arguments of a job: declared with defaults, told as text."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.job.arguments import Arguments, parse_arguments

DECLARED = Arguments({"topic": "edits", "smallest": 3, "share": 0.5, "bots": False})


def test_defaults_count_unless_told_otherwise() -> None:
    told = DECLARED.told({"smallest": " 7 ", "bots": "Yes"})
    assert dict(told) == {"topic": "edits", "smallest": 7, "share": 0.5, "bots": True}
    assert DECLARED["smallest"] == 3


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("topic", " a=b ", " a=b "),
        ("topic", "", ""),
        ("smallest", "-12", -12),
        ("share", "1", 1.0),
        ("bots", "0", False),
        ("bots", "true", True),
    ],
)
def test_text_becomes_a_value_of_the_type_of_the_default(
    name: str, text: str, value: object
) -> None:
    found = DECLARED.told({name: text})[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"smallest": "3.5"}, "INVALID_ARGUMENT", "not a whole number"),
        ({"share": "half"}, "INVALID_ARGUMENT", "not a number"),
        ({"bots": "maybe"}, "INVALID_ARGUMENT", "not true or false"),
        ({"tpoic": "x"}, "UNKNOWN_ARGUMENT", "no argument 'tpoic'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    given: dict[str, str], error: str, says: str
) -> None:
    with pytest.raises(HoldfastError) as refused:
        DECLARED.told(given)
    assert refused.value.name == error
    assert says in str(refused.value)


def test_a_job_without_arguments_says_how_to_declare_them() -> None:
    with pytest.raises(HoldfastError, match="declare it with its default"):
        hf.Job("plain").arguments.told({"topic": "x"})


@pytest.mark.parametrize("wrong", [{"a b": 1}, {"list": [1]}, {"none": None}])
def test_defaults_that_cannot_be_told_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(JobDefinitionError):
        hf.Job("wrong", arguments=wrong)  # type: ignore[arg-type]


def test_other_code_is_told_what_it_knows_of() -> None:
    assert DECLARED.known_of({"topic": "x", "gone": "1"}) == {"topic": "x"}


def test_as_typed() -> None:
    assert parse_arguments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(HoldfastError, match="write NAME=VALUE"):
        parse_arguments(["a"])
